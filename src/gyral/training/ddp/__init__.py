"""Several processes that train one model (trainer=ddp), started and ended with each run.

Lightning would start the other processes by this process's command line. In a sweep, each of them would then run the
whole sweep, and Lightning's environment variables would stay for the next job. Here the first process starts the other
processes of its node with the resolved configuration of the run. Only the first process writes to the run directory;
the others write to a temporary folder.

Each process sees every batch and takes its own rows of it. The results of a run and its position in the data therefore
do not depend on the number of processes.
"""
