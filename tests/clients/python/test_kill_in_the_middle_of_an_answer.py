"""Worker or server are killed while an answer streams; what was shown of it is taken back, not glued."""

from anthropic import APIError
from anthropic.lib.sessions import accumulate_managed_agents_event
from httpx2 import TransportError

import running
import wire
from case import Case, is_idle, message, of_kind, said

ANSWER = "This answer is told slowly, piece by piece, until it is whole."

LOST = (APIError, TransportError)


class KillInTheMiddleOfAnAnswer(Case):
    @classmethod
    def setUpClass(cls) -> None:
        cls.tenure = running.Tenure(worker_apart=True)
        cls.addClassCleanup(cls.tenure.stop)
        cls.client = cls.tenure.client()

    def begun(self):
        """A session whose answer has begun, its open stream, and what it showed."""
        session = self.session("slow-answer")
        stream = self.stream(session, event_deltas=["agent.message"])
        self.addCleanup(stream.close)
        self.send(session, message("go"))
        return session, stream, self.read(stream, lambda event: event.type == "event_delta")

    def check(self, session, seen: list) -> None:
        """Two attempts with ids of their own, the first one closed as failed, and one whole answer."""
        first, second = [event.event.id for event in seen if event.type == "event_start"]
        self.assertNotEqual(first, second)
        (answer,) = of_kind(seen, "agent.message")
        self.assertEqual((answer.id, said(seen)), (second, [ANSWER]))
        ends = of_kind(seen, "span.model_request_end")
        self.assertEqual([end.is_error for end in ends], [True, False])
        self.assertEqual((ends[0].model_usage.input_tokens, ends[0].model_usage.output_tokens), (0, 0))
        told = {}
        for event in seen:
            if event.type == "event_delta":
                told[event.event_id] = told.get(event.event_id, "") + event.delta.content.text
        self.assertEqual(told[second], ANSWER)
        self.assertTrue(ANSWER.startswith(told[first]) and told[first] != ANSWER)
        self.assertEqual(of_kind(self.all_events(session), "agent.message")[0].id, second)

    def test_the_worker_is_killed_and_the_open_stream_shows_the_second_attempt(self) -> None:
        session, stream, seen = self.begun()
        self.tenure.kill_worker()
        self.tenure.start()
        seen += self.read(stream, is_idle)
        self.check(session, seen)
        durable = [event.to_dict() for event in seen if getattr(event, "processed_at", None) is not None]
        self.assertEqual(durable, [event.to_dict() for event in self.all_events(session)])
        snapshot = None
        for event in seen:
            snapshot = accumulate_managed_agents_event(snapshot, event)
            if event.type == "event_delta":
                shown = "".join(block.text for block in snapshot.content)
                self.assertTrue(ANSWER.startswith(shown), "the client's own accumulator glues nothing either")

    def test_the_server_is_killed_and_a_reader_comes_back_inside_the_answer(self) -> None:
        session = self.session("slow-answer")
        shown, last = "", None
        with wire.RawStream(self.tenure, session.id, query="?after=0&event_deltas[]=agent.message") as stream:
            self.send(session, message("go"))
            for frame in stream.frames():
                last = frame.id or last
                if frame.event == "event_delta":
                    shown += frame.data["delta"]["content"]["text"]
                    break
        self.tenure.kill_server()
        self.tenure.start()
        starts = []
        query = "?event_deltas[]=agent.message"
        with wire.RawStream(self.tenure, session.id, query=query, last_event_id=last) as stream:
            for frame in stream.frames():
                if frame.event == "session.preview_reset":
                    shown = ""
                elif frame.event == "event_start":
                    starts.append(frame.data["event"]["id"])
                elif frame.event == "event_delta":
                    shown += frame.data["delta"]["content"]["text"]
                    self.assertTrue(ANSWER.startswith(shown), shown)
                elif frame.event == "session.status_idle":
                    break
        self.assertEqual(shown, ANSWER, "the worker lived on, so the same message goes on")
        self.assertEqual(starts, [], "and it is not begun again")
        self.assertEqual(said(self.all_events(session)), [ANSWER])
