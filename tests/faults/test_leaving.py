"""What leaves the machine when a run of somebody else is resumed: nothing to his projects, and no text of the user.

Each attack resumes a run that logs to a server of Weights & Biases, as far as it needs one.
"""

import itertools
import json
import os
import random
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import wandb
from omegaconf import OmegaConf

from gyral.core.cache import cache_directory
from gyral.runs.directory import load_run
from gyral.runs.wandb_key import user_settings
from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_TEXT, invoke, train

PRIVATE = "my private word"
ENTITIES = ("stranger", "Stranger", "me-too", "team2", "me ", "mé", None, "me", "team")
OWN = (None, "me", "team")
# by name, what somebody else writes into the current directory, in which the run is
SETTINGS = {
    "none": {},
    "W&B's": {"wandb/settings": "[default]\nbase_url = {trap}\nentity = stranger\n"},
    "W&B's with a dot": {".wandb/settings": "[default]\nbase_url = {trap}\nmode = online\n"},
    "requests'": {
        ".netrc": "machine 127.0.0.1 login user password theirs\n",
    },
    "a run's": {"run/wandb/settings": "[default]\nbase_url = {trap}\n"},
}
CORPORA = ("none", "private", "private, in a list of places", "private, by a link")
CASES = list(itertools.product(ENTITIES, SETTINGS, CORPORA))


class Server:
    """A server that knows its user, me, of the team `team`, and refuses everything else. It keeps what it gets."""

    def __init__(self) -> None:
        self.received: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode(errors="replace")
                server.received.append(f"{self.path} {body}")
                knows = "viewer" in body and "mutation" not in body
                answer = json.dumps(VIEWER if knows else {"errors": [{"message": "refused"}]}).encode()
                self.send_response(200 if knows else 400)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_PUT = do_POST  # noqa: N815  (names of the library)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


VIEWER = {
    "data": {
        "viewer": {
            **{"id": "a", "entity": "me", "username": "me", "name": "me", "email": "", "admin": False, "flags": "{}"},
            "teams": {"edges": [{"node": {"name": "team"}}]},
        }
    }
}


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """The user's server, and a stranger's."""
    pair = Server(), Server()
    yield pair
    for server in pair:
        server.close()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a text of the user, with its digest."""
    folder = tmp_path_factory.mktemp("leaving")
    (folder / "private.txt").write_text(f"{PRIVATE} is here\n" * 200)
    steps = ("trainer.max_steps=2", "trainer.val_check_interval=1", f"task.corpus.path={folder}/private.txt")
    return train(folder / "run", *(word for word in SMALL_TEXT if "max_steps" not in word), "model=gru", *steps)


def prepare(trained: Path, here: Path, entity: str | None, corpus: str) -> None:
    """Write a run of a stranger to the folder run/: his configuration names an entity, and the user's text."""
    run = here / "run"
    shutil.copytree(trained, run)
    (run / "DONE").unlink()
    config = OmegaConf.load(run / "config.yaml")
    config.logger = {"wandb": {"_target_": "gyral.training.loggers.wandb_logger", "entity": entity, "project": "p"}}
    provenance = json.loads((run / "provenance.json").read_text())
    text = Path(config.task.corpus.path)
    if corpus == "none":
        shutil.copy(text, run / "own.txt")
        config.task.corpus.path = str(run / "own.txt")
    elif "link" in corpus:
        (here / "link.txt").symlink_to(text)
        config.task.corpus.path = str(here / "link.txt")
    if "list" in corpus:
        config.task.corpus.path = f"{text.parent}/../{text.parent.name}/private.txt"
    OmegaConf.save(config, run / "config.yaml")
    (run / "provenance.json").write_text(json.dumps({**provenance, "data": {}}))


@pytest.mark.attacks(sampled=1, whole=len(CASES) // 3)
def test_a_saved_configuration_sends_nothing_to_others(
    attack: Attack,
    servers: tuple[Server, Server],
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = random.Random(f"{attack.seed} leaving").sample(CASES, len(CASES))
    entity, settings, corpus = order[attack.number]
    mine, trap = servers
    prepare(trained, tmp_path, entity, corpus)
    for name, content in SETTINGS[settings].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content.format(trap=trap.url))
    key = {"WANDB_BASE_URL": mine.url, "WANDB_API_KEY": "0" * 40, "WANDB_INIT_TIMEOUT": "20", "HOME": str(tmp_path)}
    for name, value in {**key, "GYRAL_CACHE": str(cache_directory())}.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.startswith("WANDB_") and name not in key]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    ended = invoke("resume=run")
    wandb.teardown()
    where = f"{entity}, {settings}, {corpus}: {ended.err}"
    assert ended.status == 0, where
    assert not trap.received, where
    sent = "\n".join(mine.received)
    assert PRIVATE not in sent, where
    assert entity is None or (entity in OWN) == (f'"{entity}"' in sent), where
    assert (entity in OWN) != ("of which you are not a member" in ended.err), where
    assert ("not by you" in ended.err) == (corpus != "none"), where
    named = [line for line in ended.err.splitlines() if "private.txt" in line or "link.txt" in line]
    assert not named or "not by you" in named[0], "it is named before it is read"
    attack.record("asked for the run" if "RunResumeStatus" in sent else "not logged")


def test_data_of_which_a_run_has_the_digest_are_its_own(trained: Path, tmp_path: Path) -> None:
    run = load_run(trained)
    assert run.foreign_data() == {}
    shutil.copytree(trained, tmp_path / "run")
    provenance = json.loads((trained / "provenance.json").read_text())
    (tmp_path / "run" / "provenance.json").write_text(json.dumps({**provenance, "data": {}}))
    assert list(load_run(tmp_path / "run").foreign_data()) == ["task.corpus.path"]


def test_data_below_the_working_directory_are_its_own_but_not_below_home(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained, tmp_path / "run")
    provenance = json.loads((trained / "provenance.json").read_text())
    (tmp_path / "run" / "provenance.json").write_text(json.dumps({**provenance, "data": {}}))
    monkeypatch.chdir(trained.parent)
    assert load_run(tmp_path / "run").foreign_data() == {}
    (tmp_path / "home").symlink_to(trained.parent)
    for home in (trained.parent, trained, tmp_path / "home"):
        monkeypatch.setenv("HOME", str(home))
        assert list(load_run(tmp_path / "run").foreign_data()) == ["task.corpus.path"]


def test_no_part_of_wandb_reads_the_settings_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert user_settings().base_url != "http://127.0.0.1:9"
        assert wandb.Settings().read_system_settings().all().get("base_url") != "http://127.0.0.1:9"
