"""Requests and streams without the client, for what the client would never send."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass

import running


@dataclass
class Reply:
    """A reply that was read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Frame:
    """One frame of a stream, with the bytes that it came as."""

    event: str | None
    id: str | None
    data: dict | None
    raw: bytes


def open_request(tenure: running.Tenure, method: str, path: str, *, body: bytes | None = None, headers: dict | None = None):
    """Sends a request and gives the connection and the reply, whose body is not read yet."""
    connection = http.client.HTTPConnection(tenure.address, timeout=running.CLIENT_TIMEOUT)
    fields = {"x-api-key": tenure.key}
    if body is not None:
        fields["content-type"] = "application/json"
    connection.request(method, path, body=body, headers={**fields, **(headers or {})})
    return connection, connection.getresponse()


def request(tenure: running.Tenure, method: str, path: str, **options) -> Reply:
    """Sends a request and reads the whole reply."""
    connection, reply = open_request(tenure, method, path, **options)
    try:
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())
    finally:
        connection.close()


class RawStream:
    """An event stream, frame by frame."""

    def __init__(self, tenure: running.Tenure, session_id: str, *, query: str = "", last_event_id: str | None = None) -> None:
        headers = {"accept": "text/event-stream"}
        if last_event_id is not None:
            headers["last-event-id"] = last_event_id
        path = f"/v1/sessions/{session_id}/events/stream{query}"
        self._connection, self._reply = open_request(tenure, "GET", path, headers=headers)
        self.status = self._reply.status
        self.headers = self._reply.headers

    def __enter__(self) -> "RawStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._reply.close()
        self._connection.close()

    def body(self) -> bytes:
        """The whole body, where the reply is no stream."""
        return self._reply.read()

    def frames(self) -> Iterator[Frame]:
        """The frames as they come; comments are left out."""
        frame, raw = Frame(None, None, None, b""), b""
        while line := self._reply.readline():
            name, _, value = line.decode().rstrip("\r\n").partition(":")
            value = value.removeprefix(" ")
            if line.startswith(b":"):
                continue
            raw += line
            if line.strip():
                if name == "data":
                    frame.data = json.loads(value)
                elif name in ("event", "id"):
                    setattr(frame, name, value)
                continue
            if frame.event is not None or frame.data is not None:
                frame.raw = raw
                yield frame
            frame, raw = Frame(None, None, None, b""), b""

    def up_to(self, seq: int) -> list[Frame]:
        """The frames up to the one of the event with this `seq`."""
        taken = []
        for frame in self.frames():
            taken.append(frame)
            if frame.id == str(seq):
                return taken
        raise AssertionError(f"the stream ended after {[frame.id for frame in taken]} before event {seq}")
