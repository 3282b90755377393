"""Database servers for tests: PostgreSQL and MariaDB, each with a user `gyral` that has a password."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers.engines import daemon, free_port, require, wait_until

PASSWORD = f"{secrets.token_hex(8)}@all"  # not in the source, which runs record; @ is written in another way in a URL
IN_URL = PASSWORD.replace("@", "%40")


@contextmanager
def sqlite() -> Iterator[str]:
    """Yield the URL of a database in a file; it has no password."""
    with tempfile.TemporaryDirectory(prefix="gyral-") as folder:
        yield f"sqlite:///{folder}/study.db"


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a PostgreSQL server; yield the URL of a database, with the password.

    PostgreSQL does not run as root: root starts it as the user postgres, in a folder of that user.
    """
    pytest.importorskip("psycopg", reason="psycopg is not installed; see make test-cluster-install")
    initdb, server = require("PostgreSQL", "initdb", "postgres")
    with _folder("postgres") as (folder, as_user):
        (folder / "password").write_text(PASSWORD)
        os.chmod(folder / "password", 0o644)
        options = ("--username=gyral", "--auth=scram-sha-256", f"--pwfile={folder}/password", "--no-sync")
        _call([*as_user, initdb, f"--pgdata={folder}/data", *options])
        port = free_port()
        command = [*as_user, server, "-D", f"{folder}/data", "-p", str(port), "-k", str(folder), "-F"]
        with daemon([*command, "-h", "127.0.0.1"], folder / "log") as process:
            wait_until(lambda: "ready to accept connections" in (folder / "log").read_text(), what="PostgreSQL")
            assert process.poll() is None
            try:
                yield f"postgresql+psycopg://gyral:{IN_URL}@127.0.0.1:{port}/postgres"
            finally:
                process.send_signal(signal.SIGINT)  # SIGTERM would wait for connections that are still open


@contextmanager
def mariadb() -> Iterator[str]:
    """Start a MariaDB server; yield the URL of a database, with the password."""
    pytest.importorskip("pymysql", reason="PyMySQL is not installed; see make test-cluster-install")
    install, server = require("MariaDB", "mariadb-install-db", "mariadbd")
    with _folder("mysql") as (folder, as_user):
        start = folder / "start.sql"
        account = f"gyral@localhost IDENTIFIED BY '{PASSWORD}'"
        start.write_text(f"CREATE DATABASE gyral;\nGRANT ALL ON gyral.* TO {account};\n")  # a line per statement
        os.chmod(start, 0o644)
        own = ["--no-defaults", f"--datadir={folder}/data"]
        _call([*as_user, install, *own, "--auth-root-authentication-method=normal", "--skip-test-db"])
        port = free_port()
        options = [f"--socket={folder}/socket", f"--port={port}", "--bind-address=127.0.0.1", f"--init-file={start}"]
        options.append(f"--pid-file={folder}/pid")
        with daemon([*as_user, server, *own, *options], folder / "log") as process:
            wait_until(lambda: "ready for connections" in (folder / "log").read_text(), what="MariaDB")
            assert process.poll() is None
            yield f"mysql+pymysql://gyral:{IN_URL}@127.0.0.1:{port}/gyral"


@contextmanager
def _folder(user: str) -> Iterator[tuple[Path, list[str]]]:
    """Provide a new folder, and the words that start a command as its owner: for root, a user without rights."""
    folder = Path(tempfile.mkdtemp(prefix="gyral-"))  # not of pytest, whose folders are closed to other users
    as_user: list[str] = []
    try:
        if os.geteuid() == 0:
            account = pwd.getpwnam(user)
            os.chown(folder, account.pw_uid, account.pw_gid)
            (setpriv,) = require("util-linux", "setpriv")
            # exec, so that signals reach the server itself
            as_user = [setpriv, f"--reuid={user}", f"--regid={account.pw_gid}", "--init-groups", "--"]
        yield folder, as_user
    finally:
        shutil.rmtree(folder)


def _call(command: list[str]) -> None:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
