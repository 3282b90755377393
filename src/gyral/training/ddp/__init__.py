"""Several processes that train one model (trainer=ddp), started and ended with each run.

Lightning would start the other processes by this process's command line. In a sweep, each of them would then run the
whole sweep, and Lightning's environment variables would stay for the next job. Here the first process starts the other
processes of its node with the resolved configuration of the run. Only the first process writes to the run directory;
the others write to a temporary folder.

torch's elastic agent (torchrun) may start all processes of a run, but does not start those of `trainer=ddp` alone. It
gives each a session of its own, which Ctrl-Z does not reach. They survive when it is killed, and go on writing to the
run directory. It kills them 30 seconds after a signal or a failure, even while they write a checkpoint.

Each process sees every batch and takes its own rows of it. The results of a run and its position in the data therefore
do not depend on the number of processes.
"""
