"""Server and worker are killed while a command runs; the same client object picks the session up."""

from anthropic import APIError
from httpx2 import TransportError

import running
import wire
from case import TOOLSET, Case, is_kind, message, of_kind, said, text

# What the client sees of a server that goes away: an error of its own, or of the connection below it.
LOST = (APIError, TransportError)


class KillBetweenToolUseAndToolResult(Case):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tenure = running.Tenure(worker_apart=True)
        cls.addClassCleanup(cls.tenure.stop)
        cls.client = cls.tenure.client()

    def started(self):
        """A session whose command runs, its open stream, and the call."""
        session = self.session("long-command", tools=[TOOLSET])
        stream = self.stream(session)
        self.addCleanup(stream.close)
        self.send(session, message("go"))
        seen = self.read(stream, is_kind("session.tool_started"))
        (call,) = of_kind(seen, "agent.tool_use")
        self.assertEqual(of_kind(seen, "agent.tool_result"), [])
        # The event says that the command may have begun; only its effect says that it has. The file is
        # there a moment before the line in it.
        while b"started" not in wire.request(self.tenure, "GET", f"/v1/sessions/{session.id}/files/content?path=effects").body:
            pass
        return session, stream, call, seen

    def pick_up(self, session, seen: list) -> list:
        """What a client does after a loss: stream first, then list, and drop what it has already."""
        known = {event.id: event for event in seen if getattr(event, "processed_at", None) is not None}
        with self.stream(session) as stream:
            for event in self.all_events(session):
                known.setdefault(event.id, event)
            if not of_kind(known.values(), "session.status_idle"):
                for event in self.read(stream, is_kind("session.status_idle")):
                    if event.type not in ("event_start", "event_delta") and event.processed_at is not None:
                        known.setdefault(event.id, event)
        return sorted(known.values(), key=lambda event: event.seq)

    def check(self, session, call, before: list, after: list) -> None:
        """Nothing committed is lost, the call has one result, and the command ran once."""
        self.assertEqual([event.seq for event in after], list(range(1, len(after) + 1)))
        processed = [event.to_dict() for event in before if event.processed_at is not None]
        self.assertEqual([event.to_dict() for event in after][: len(processed)], processed)
        results = [event for event in of_kind(after, "agent.tool_result") if event.tool_use_id == call.id]
        self.assertEqual([result.is_error for result in results], [True])
        self.assertEqual(said(after)[-1].split()[:3], ["Times", "started:", "1"])
        self.assertEqual(after[-1].stop_reason.type, "end_turn")
        self.assertEqual([event.to_dict() for event in self.all_events(session)], [event.to_dict() for event in after])

    def lose(self, stream) -> list:
        """Reads a stream whose server is gone to its end."""
        seen = []
        try:
            for event in stream:
                seen.append(event)
        except LOST:
            pass
        return seen

    def test_server_and_worker_are_killed_and_the_client_picks_up(self) -> None:
        session, stream, call, seen = self.started()
        self.tenure.kill_worker()
        self.tenure.kill_server()
        seen += self.lose(stream)
        self.tenure.start()
        after = self.pick_up(session, seen)
        self.check(session, call, seen, after)
        self.assertIn("go on", said(self.turn(session, message("go on")))[-1])

    def test_the_worker_is_killed_and_the_stream_goes_on(self) -> None:
        session, stream, call, seen = self.started()
        self.tenure.kill_worker()
        self.tenure.start()
        seen += self.read(stream, is_kind("session.status_idle"))
        after = self.all_events(session)
        self.check(session, call, seen, after)
        self.assertEqual(
            [event.to_dict() for event in seen if event.processed_at is not None],
            [event.to_dict() for event in after],
            "the open stream showed everything, once",
        )

    def test_only_the_server_is_killed_and_the_command_runs_on(self) -> None:
        session, stream, call, seen = self.started()
        self.tenure.kill_server()
        seen += self.lose(stream)
        self.tenure.start()
        self.assertEqual(of_kind(self.all_events(session), "agent.tool_result"), [])
        done = self.turn(session, {"type": "user.interrupt"})
        (result,) = of_kind(done, "agent.tool_result")
        self.assertEqual((result.tool_use_id, result.is_error), (call.id, True))
        self.assertNotEqual(text(result), "")
