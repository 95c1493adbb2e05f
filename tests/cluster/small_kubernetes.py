"""A small Kubernetes: its API as Spark uses it, and pods whose containers are run as processes of this machine.

It keeps what it is given, knows no image and no network: all pods have this machine's file system, and its address. The
paths at which config maps are mounted become folders of the pod.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from spark_kafka_group.testing.node import session

ADDRESS = "127.0.0.1"
PATH = re.compile(
    r"/api(?:s/[^/]+)?/[^/]+/namespaces/(?P<namespace>[^/]+)/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>.+))?$"
)
Made = dict[str, Any]


def merged(into: Made, patch: Mapping[str, Any]) -> Made:
    """As a merge patch."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merged(into[key], value)
        else:
            into[key] = value
    return into


def patched(into: Made, operations: list[Made]) -> Made:
    """As a JSON patch, of objects."""
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        place = into
        for parent in parents:
            place = place.setdefault(parent, {})
        if operation["op"] == "remove":
            place.pop(last, None)
        else:
            place[last] = operation["value"]
    return into


class Kubernetes:
    """The API, and the pods; a context manager.

    Parameters
    ----------
    directory
        Of the pods' logs, and what is mounted into them.
    entrypoint
        The image's.
    variables
        Environment of the image.
    """

    def __init__(self, directory: Path, entrypoint: Path, variables: Mapping[str, str]) -> None:
        self._directory, self._entrypoint, self._variables = directory, entrypoint, dict(variables)
        self._changed = threading.Condition()
        self._versions = itertools.count(1)
        self._kept: dict[tuple[str, str], Made] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.events: list[tuple[str, str, Made]] = []
        self._server = ThreadingHTTPServer((ADDRESS, 0), Handler)
        self._server.daemon_threads = True
        self._server.kubernetes = self  # type: ignore[attr-defined]
        self.url = f"http://{ADDRESS}:{self._server.server_address[1]}"

    def __enter__(self) -> Kubernetes:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._processes):
            self._kill(name, signal.SIGKILL)
        self._server.shutdown()
        self._server.server_close()

    # What tests ask

    def pods(self, role: str) -> list[Made]:
        """Pods with this spark-role."""
        with self._changed:
            every = [made for (kind, _), made in self._kept.items() if kind == "pods"]
        return [pod for pod in every if pod["metadata"].get("labels", {}).get("spark-role") == role]

    def log(self, pod: Made) -> str:
        return (self._directory / pod["metadata"]["name"] / "log").read_text(errors="replace")

    def processes(self, pod: Made) -> list[int]:
        """Of a pod; the first one is the container's own."""
        return session(self._processes[pod["metadata"]["name"]].pid)

    # The API

    def create(self, kind: str, made: Made) -> Made:
        metadata = made.setdefault("metadata", {})
        metadata.setdefault("namespace", "default")
        metadata["uid"] = f"uid-{kind}-{metadata['name']}"
        metadata["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if kind == "pods":
            made["status"] = {"phase": "Pending", "podIP": ADDRESS, "hostIP": ADDRESS}
        self._keep("ADDED", kind, made)
        if kind == "pods":
            threading.Thread(target=self._run, args=(copy.deepcopy(made),), daemon=True).start()
        return made

    def get(self, kind: str, name: str) -> Made | None:
        with self._changed:
            return copy.deepcopy(self._kept.get((kind, name)))

    def change(self, kind: str, name: str, patch: Made | list[Made]) -> Made:
        with self._changed:
            made = self._kept[kind, name]
            changed = patched(made, patch) if isinstance(patch, list) else merged(made, patch)
        return self._keep("MODIFIED", kind, changed)

    def delete(self, kind: str, name: str) -> Made | None:
        with self._changed:
            made = self._kept.pop((kind, name), None)
            if made is not None:
                self.events.append(("DELETED", kind, copy.deepcopy(made)))
                self._changed.notify_all()
        if made is not None and name in self._processes:
            self._kill(name, signal.SIGTERM)
        return made

    def listed(self, kind: str, selector: str) -> list[Made]:
        with self._changed:
            return [
                copy.deepcopy(made) for (its, _), made in self._kept.items() if its == kind and fits(made, selector)
            ]

    def watched(self, kind: str, selector: str, name: str) -> Iterator[Made]:
        """Events from now on."""
        at = len(self.events)
        while True:
            with self._changed:
                self._changed.wait_for(lambda at=at: len(self.events) > at)
                new, at = self.events[at:], len(self.events)
            for what, its, made in new:
                if its == kind and fits(made, selector) and name in ("", made["metadata"]["name"]):
                    yield {"type": what, "object": made}

    def _keep(self, what: str, kind: str, made: Made) -> Made:
        with self._changed:
            made["metadata"]["resourceVersion"] = str(next(self._versions))
            self._kept[kind, made["metadata"]["name"]] = made
            self.events.append((what, kind, copy.deepcopy(made)))
            self._changed.notify_all()
            return copy.deepcopy(made)

    # Pods

    def _run(self, pod: Made) -> None:
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        folder = self._directory / name
        folder.mkdir(parents=True)
        moved = self._mounted(pod, container, folder)
        names = service_names(self._kept)

        def here(text: str) -> str:
            for path, place in moved.items():
                text = text.replace(path, place)
            return names.sub(ADDRESS, text) if names.pattern else text

        for mounted in folder.rglob("mounted/*"):
            if mounted.is_file():
                mounted.write_text(here(mounted.read_text()))
        own = {each["name"]: here(self._value(pod, each)) for each in container.get("env", ())}
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(self._entrypoint), *(here(each) for each in container.get("args", ()))],
                env=self._variables | own, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._processes[name] = process
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        state = {"name": container["name"], "state": {"running": {"startedAt": started}}}
        self._told(name, {"phase": "Running", "startTime": started, "containerStatuses": [state]} | ready)
        code = process.wait()
        ended = {"exitCode": code if code >= 0 else 128 - code, "startedAt": started, "finishedAt": started}
        state = {"name": container["name"], "state": {"terminated": ended}}
        self._told(name, {"phase": "Failed" if code else "Succeeded", "containerStatuses": [state]})

    def _told(self, name: str, status: Made) -> None:
        with self._changed:
            known = ("pods", name) in self._kept
        if known:
            self.change("pods", name, {"status": status})

    def _mounted(self, pod: Made, container: Made, folder: Path) -> dict[str, str]:
        """Write volumes; returns their folders by the paths in the container."""
        moved = {}
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        for number, mount in enumerate(container.get("volumeMounts", ())):
            volume = volumes.get(mount["name"], {})
            if "configMap" not in volume and "emptyDir" not in volume:
                continue
            place = folder / f"volume{number}" / "mounted"
            place.mkdir(parents=True)
            moved[mount["mountPath"]] = str(place)
            if "configMap" in volume:
                named = {item["key"]: item["path"] for item in volume["configMap"].get("items", ())}
                data = self._awaited("configmaps", volume["configMap"]["name"]).get("data") or {}
                for key, text in data.items():
                    if key in named or not named:
                        (place / named.get(key, key)).write_text(text)
        return moved

    def _awaited(self, kind: str, name: str) -> Made:
        """What is created after the pod that names it."""
        with self._changed:
            self._changed.wait_for(lambda: (kind, name) in self._kept, timeout=60)
            return self._kept[kind, name]

    def _value(self, pod: Made, variable: Made) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value", ""))
        field = source["fieldRef"]["fieldPath"]
        return {"status.podIP": ADDRESS, "metadata.name": pod["metadata"]["name"]}[field]

    def _kill(self, name: str, number: int) -> None:
        process = self._processes[name]
        for pid in session(process.pid) if number == signal.SIGKILL else [process.pid]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


def fits(made: Made, selector: str) -> bool:
    """Whether its labels fit a selector of `name=value`s, `name in (...)`s and `name notin (...)`s."""
    labels = made["metadata"].get("labels") or {}
    for term in filter(None, re.split(r",(?![^(]*\))", selector)):
        among = re.fullmatch(r"\s*(\S+) (in|notin) \((.*)\)\s*", term)
        if among:
            name, how, values = among.groups()
            if (labels.get(name) in [value.strip() for value in values.split(",")]) != (how == "in"):
                return False
        elif "=" in term:
            name, _, value = term.replace("==", "=").partition("=")
            if name.endswith("!"):
                if labels.get(name[:-1]) == value:
                    return False
            elif labels.get(name.strip()) != value.strip():
                return False
    return True


def service_names(kept: Mapping[tuple[str, str], Made]) -> re.Pattern[str]:
    """Names by which services are looked up."""
    names = [re.escape(name) for kind, name in kept if kind == "services"]
    return re.compile(rf"(?:{'|'.join(names)})(?:\.\w+\.svc(?:\.cluster\.local)?)?" if names else "")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _kubernetes(self) -> Kubernetes:
        return self.server.kubernetes  # type: ignore[attr-defined, no-any-return]

    def log_message(self, *_: object) -> None:
        return

    def _asked(self) -> tuple[re.Match[str] | None, dict[str, list[str]]]:
        split = urlsplit(self.path)
        return PATH.match(split.path), parse_qs(split.query)

    def _body(self) -> Any:
        length = int(self.headers.get("Content-Length") or 0)
        return yaml.safe_load(self.rfile.read(length)) if length else {}

    def _answer(self, code: int, made: Any) -> None:
        body = json.dumps(made).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _missing(self, name: str) -> None:
        self._answer(404, {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": name})

    def do_GET(self) -> None:
        place, query = self._asked()
        if place is None:
            self._missing(self.path)
            return
        kind, name = place["kind"], place["name"] or ""
        selector = query.get("labelSelector", [""])[0]
        field = re.fullmatch(r"metadata\.name==?(\S+)", query.get("fieldSelector", [""])[0])
        name = name or (field[1] if field else "")
        if self.headers.get("Upgrade"):
            self._answer(
                503, {"kind": "Status", "code": 503, "message": "no web sockets"}
            )  # clients watch by HTTP then
        elif query.get("watch") == ["true"]:
            self._watch(kind, selector, name)
        elif place["name"]:
            made = self._kubernetes.get(kind, name)
            self._missing(name) if made is None else self._answer(200, made)
        else:
            items = [made for made in self._kubernetes.listed(kind, selector) if name in ("", made["metadata"]["name"])]
            head = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}
            self._answer(200, head | {"items": items})

    def _watch(self, kind: str, selector: str, name: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for event in self._kubernetes.watched(kind, selector, name):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
        except OSError:
            self.close_connection = True

    def do_POST(self) -> None:
        place, _ = self._asked()
        assert place is not None, self.path
        self._answer(201, self._kubernetes.create(place["kind"], self._body()))

    def do_PATCH(self) -> None:
        place, _ = self._asked()
        assert place is not None, self.path
        body, kind, name = self._body(), place["kind"], place["name"]
        if self._kubernetes.get(kind, name) is not None:
            self._answer(200, self._kubernetes.change(kind, name, body))
        elif "apply-patch" in self.headers.get("Content-Type", ""):
            self._answer(201, self._kubernetes.create(kind, body))
        else:
            self._missing(name)

    def do_PUT(self) -> None:
        self.do_PATCH()

    def do_DELETE(self) -> None:
        place, query = self._asked()
        assert place is not None, self.path
        self._body()
        kind = place["kind"]
        listed = self._kubernetes.listed(kind, query.get("labelSelector", [""])[0])
        names = [place["name"]] if place["name"] else [made["metadata"]["name"] for made in listed]
        for name in names:
            self._kubernetes.delete(kind, name)
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
