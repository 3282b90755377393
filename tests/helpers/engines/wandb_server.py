"""A server that stands in for Weights & Biases, and fails on command.

It answers the calls of wandb 0.31: GraphQL for runs, sweeps and agents, and the stream of metrics of a run. It runs in
a thread of the tests' process, and keeps what it has received in `runs`.
"""

import base64
import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

ENTITY = "somebody"
STREAMED = {"wandb-history.jsonl": "history", "wandb-events.jsonl": "events", "output.log": "output"}


@dataclass
class StoredRun:
    """What the server has of a run.

    Attributes:
        fields: displayName, groupName, jobType, tags, … as the run set them last.
        config: the configuration, by key.
        history: the rows that the run logged, in order.
        summary: the last values.
        events, output: measurements of the machine, and lines of the log.
        files: the sizes of uploaded files, by name.
        exit_code: the exit code, None while the run is running.
        preempting: whether the run said that it is being preempted.
        overwritten: how many rows were sent again.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    history: list[Any] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    exit_code: int | None = None
    preempting: bool = False
    overwritten: int = 0

    def update(self, variables: dict[str, Any]) -> None:
        self.fields |= {name: value for name, value in variables.items() if value not in (None, "", [])}
        if variables.get("config"):
            self.config = {name: item["value"] for name, item in json.loads(variables["config"]).items()}
        if variables.get("summaryMetrics"):
            self.summary = json.loads(variables["summaryMetrics"])

    def append(self, body: dict[str, Any]) -> None:
        for name, chunk in (body.get("files") or {}).items():
            lines = chunk["content"]
            if name == "wandb-summary.json":
                self.summary = json.loads(lines[-1])
            elif name in STREAMED:
                kept: list[Any] = getattr(self, STREAMED[name])
                content = lines if name == "output.log" else list(map(json.loads, lines))
                if name == "wandb-history.jsonl":
                    self.overwritten += max(0, len(kept) - chunk["offset"])
                kept[chunk["offset"] : chunk["offset"] + len(lines)] = content
        self.preempting |= bool(body.get("preempting"))
        if body.get("complete"):
            self.exit_code = body["exitcode"]

    def bucket(self, name: str, project: str) -> dict[str, Any]:
        """Return the run as GraphQL does."""
        return {
            "id": _encoded(name),
            "name": name,
            "displayName": self.fields.get("displayName", name),
            "project": {"id": "p", "name": project, "entity": {"id": "e", "name": ENTITY}},
            "projectId": 1,
            "config": json.dumps({key: {"value": value} for key, value in self.config.items()}),
            "summaryMetrics": json.dumps(self.summary),
            "sweepName": self.fields.get("sweep"),
            "tags": self.fields.get("tags", []),
            "notes": self.fields.get("notes"),
            "group": self.fields.get("groupName"),
            "jobType": self.fields.get("jobType"),
            "historyLineCount": len(self.history),
            "eventsLineCount": len(self.events),
            "logLineCount": len(self.output),
            "historyTail": json.dumps([json.dumps(row) for row in self.history[-1:]]),
            "eventsTail": json.dumps([json.dumps(row) for row in self.events[-1:]]),
            "wandbConfig": json.dumps({"t": 1} if "_wandb" in self.config else {}),  # whether it has started
            "createdAt": "2026-01-01T00:00:00",
            "state": "running",
            "stopped": False,
        }


class WandbServer:
    """The server.

    Attributes:
        runs: what it has received, by the id of the run.
        answer: "ok", "hang" for no answer at all, or the status of an error, such as 500.
        commands: what an agent gets at its next heartbeats, one each.
        definition: the definition of the sweep that agents work on, in YAML.
    """

    def __init__(self) -> None:
        self.runs: dict[str, StoredRun] = {}
        self.answer: str | int = "ok"
        self.commands: list[dict[str, Any]] = []
        self.definition = "{}"
        self.lock = threading.RLock()
        self._http: ThreadingHTTPServer | None = None
        self._port = 0
        self.accept()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which a program uses the server."""
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": "0" * 40, "WANDB_MODE": "online"}

    def accept(self) -> None:
        """Listen, on the same port as before."""
        server = self

        class Handler(_Handler):
            stand_in = server

        self._http = _Http(("127.0.0.1", self._port), Handler)
        self._port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def refuse(self) -> None:
        """Stop listening: connections are refused."""
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    def graphql(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the data that answer a query. A field that the server does not know is missing."""
        project = variables.get("project") or "gyral"
        name = variables.get("name") or variables.get("run") or variables.get("runName") or variables.get("runId")
        if "upsertBucket" in query:
            name = name or _decoded(variables["id"])
            inserted = name not in self.runs
            run = self.runs.setdefault(name, StoredRun())
            run.update(variables)
            return {"upsertBucket": {"bucket": run.bucket(name, project), "inserted": inserted}}
        if "createRunFiles" in query:
            files = [
                {"name": file, "displayName": file, "uploadUrl": f"{self.url}/upload/{name}/{file}"}
                for file in variables["files"]
            ]
            return {"createRunFiles": {"runID": name, "uploadHeaders": [], "files": files}}
        if "agentHeartbeat" in query:
            commands, self.commands = self.commands[:1], self.commands[1:]
            return {"agentHeartbeat": {"agent": {"id": "a"}, "commands": json.dumps(commands)}}
        if "createAgent" in query:
            return {"createAgent": {"agent": {"id": "a"}}}
        if "upsertSweep" in query:
            self.definition = variables["config"]
            place = {"id": "p", "name": project, "entity": {"id": "e", "name": ENTITY}}
            return {"upsertSweep": {"sweep": {"name": "sweep1", "project": place}, "configValidationWarnings": []}}
        if re.search(r"\bsweep\s*\(", query):
            sweep = {"id": "s", "name": "sweep1", "state": "RUNNING", "config": self.definition, "runs": {"edges": []}}
            return {"project": {"id": "p", "sweep": sweep}}
        if "bucket(" in query or re.search(r"\b(model|project)\s*\(", query):
            run = self.runs.get(name or "")
            found = run.bucket(name or "", project) if run else None
            place = {"id": "p", "name": project, "entity": {"id": "e", "name": ENTITY}}
            return {"model": {**place, "bucket": found}, "project": {**place, "run": found, "bucket": found}}
        viewer = {"id": "v", "entity": ENTITY, "username": ENTITY, "flags": "{}", "teams": {"edges": []}}
        return {"viewer": viewer, "serverInfo": {"features": []}}


class _Http(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that have been killed."""


class _Handler(BaseHTTPRequestHandler):
    stand_in: WandbServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        server, body, path = self.stand_in, self._read(), unquote(urlsplit(self.path).path)
        if server.answer == "hang":
            threading.Event().wait(600)
        elif isinstance(server.answer, int):
            self._reply(server.answer, {"errors": [{"message": f"the stand-in answers {server.answer}"}]})
        elif path == "/graphql":
            asked = json.loads(body)
            with server.lock:
                self._reply(200, {"data": server.graphql(asked["query"], asked.get("variables") or {})})
        elif match := re.fullmatch(r"/files/[^/]+/[^/]+/([^/]+)/file_stream", path):
            with server.lock:
                server.runs.setdefault(match[1], StoredRun()).append(json.loads(body))
            self._reply(200, {"exitcode": None, "limits": {}})
        elif match := re.fullmatch(r"/upload/([^/]+)/(.+)", path):
            server.runs[match[1]].files[match[2]] = len(body)
            self._reply(200, {})
        else:
            self._reply(404, {})

    def _read(self) -> bytes:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _reply(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 (the names of the standard library)


@contextmanager
def wandb_server() -> Iterator[WandbServer]:
    """Start a server that stands in for Weights & Biases; it ends when the context exits."""
    server = WandbServer()
    try:
        yield server
    finally:
        server.refuse()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
