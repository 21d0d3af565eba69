"""The base of all tests here: a bound on their time, and what they do again and again."""

import signal
import typing
import unittest

from anthropic.types.beta.sessions import BetaManagedAgentsStreamSessionEvents
from pydantic import TypeAdapter

import running

# Seconds after which a test is ended; it is not a measurement but keeps a lost event from hanging the run.
MOST_SECONDS = 90

# The tools that the agents of the tests have, with nothing to ask for.
TOOLSET = {"type": "agent_toolset_20260401", "configs": [{"name": "bash", "permission_policy": {"type": "always_allow"}}]}

# The same, where each command must be allowed by a person.
ASKING_TOOLSET = {"type": "agent_toolset_20260401", "configs": [{"name": "bash", "permission_policy": {"type": "always_ask"}}]}

PREVIEWS = ("event_start", "event_delta")


class Case(unittest.TestCase):
    """A test that talks to a tenure through the official client."""

    maxDiff = None
    tenure: running.Tenure

    @classmethod
    def setUpClass(cls) -> None:
        cls.tenure = running.shared()
        cls.client = cls.tenure.client()

    def setUp(self) -> None:
        signal.signal(signal.SIGALRM, self._too_late)
        signal.alarm(MOST_SECONDS)
        self.addCleanup(signal.alarm, 0)

    def _too_late(self, *_: object) -> None:
        raise TimeoutError(f"no end after {MOST_SECONDS} s\n{self.tenure.log()}")

    def session(self, scenario: str, *, tools: list[dict] | None = None, **fields):
        """A new session, in an environment of its own, with an agent that plays a scenario."""
        agent = self.client.beta.agents.create(name=scenario, model=f"script/{scenario}", tools=tools or [])
        environment = self.client.beta.environments.create(name=self.id(), config={"type": "cloud"})
        return self.client.beta.sessions.create(agent=agent.id, environment_id=environment.id, **fields)

    def stream(self, session, **options):
        """The live stream of a session, as a context manager."""
        return self.client.beta.sessions.events.stream(session.id, **options)

    def send(self, session, *events: dict, **options):
        """Sends events and gives them back as they were stored."""
        return self.client.beta.sessions.events.send(session.id, events=list(events), **options).data

    def all_events(self, session) -> list:
        """Everything in the log, oldest first, over all pages."""
        return list(self.client.beta.sessions.events.list(session.id, limit=50))

    def turn(self, session, *events: dict, until=None, **options) -> list:
        """Opens the stream, sends, and gives everything up to the end of the turn."""
        with self.stream(session, **options) as stream:
            self.send(session, *events)
            return self.read(stream, until or is_idle)

    def read(self, stream, until) -> list:
        """Reads a stream up to the first event for which `until` holds."""
        seen = []
        for event in stream:
            seen.append(event)
            if until(event):
                return seen
        self.fail(f"the stream ended after {kinds(seen)}\n{self.tenure.log()}")


def message(text: str) -> dict:
    """A message of the user."""
    return {"type": "user.message", "content": [{"type": "text", "text": text}]}


def is_idle(event) -> bool:
    return event.type == "session.status_idle"


def is_kind(*wanted: str):
    """Holds for processed events of these types."""
    return lambda event: event.type in wanted and getattr(event, "processed_at", None) is not None


def kinds(events) -> list[str]:
    return [event.type for event in events]


def of_kind(events, kind: str) -> list:
    """The events of one type, without inputs that still wait."""
    return [event for event in events if event.type == kind and getattr(event, "processed_at", True) is not None]


def durable(events) -> list[dict]:
    """What a stream showed, without previews and without inputs that still waited."""
    return [event.to_dict() for event in events if event.type not in PREVIEWS and event.processed_at is not None]


def said(events) -> list[str]:
    """The texts of the agent's messages."""
    return ["".join(block.text for block in event.content) for event in of_kind(events, "agent.message")]


def text(event) -> str:
    """The text of one event."""
    return "".join(block.text for block in event.content or [])


def event_shapes() -> dict[str, TypeAdapter]:
    """For each type of event that the client declares, what checks its shape."""
    union, *_ = typing.get_args(BetaManagedAgentsStreamSessionEvents)
    shapes = {}
    for model in typing.get_args(union):
        (kind,) = typing.get_args(model.model_fields["type"].annotation)
        shapes[kind] = TypeAdapter(model)
    return shapes
