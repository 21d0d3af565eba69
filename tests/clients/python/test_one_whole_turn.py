"""A client creates an agent, an environment and a session, sends a message and streams the answer."""

import unittest

from anthropic.lib.sessions import accumulate_managed_agents_event

import wire
from case import PREVIEWS, Case, durable, event_shapes, is_idle, kinds, message, of_kind, said

ALL_PREVIEWS = ["agent.message", "agent.thinking"]

ANSWER = "Hello from a scripted model, in several pieces."


class OneWholeTurn(Case):
    def test_a_turn_streams_to_idle_with_previews(self) -> None:
        session = self.session("greeting", title="first light")
        self.assertEqual((session.status, session.title), ("idle", "first light"))

        seen = self.turn(session, message("hello"), event_deltas=["agent.message"])

        (answer,) = of_kind(seen, "agent.message")
        deltas = [event for event in seen if event.type == "event_delta"]
        self.assertEqual(said(seen), [ANSWER])
        self.assertGreater(len(deltas), 1)
        self.assertEqual({event.event_id for event in deltas}, {answer.id})
        self.assertEqual("".join(event.delta.content.text for event in deltas), ANSWER)
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")
        self.assertEqual(self.client.beta.sessions.retrieve(session.id).status, "idle")

    def test_the_events_of_a_turn_come_in_the_usual_order(self) -> None:
        seen = self.turn(self.session("greeting"), message("hello"), event_deltas=["agent.message"])

        queued = next(event for event in seen if event.type == "user.message")
        order = [kind for kind in kinds(event for event in seen if event is not queued) if kind != "event_delta"]
        self.assertEqual(
            [kind for kind in order if kind not in ("user.message", "agent.thinking")],
            [
                "session.status_running",
                "span.model_request_start",
                "event_start",
                "agent.message",
                "span.model_request_end",
                "session.usage",
                "session.status_idle",
            ],
        )
        ids = [event.id for event in of_kind(seen, "user.message")]
        self.assertEqual(ids, [queued.id], "a message is shown as processed once, under the id that it was queued with")

    def test_the_accumulator_of_the_client_folds_previews_into_the_final_message(self) -> None:
        seen = self.turn(self.session("greeting"), message("hello"), event_deltas=ALL_PREVIEWS)

        snapshot, texts = None, []
        for event in seen:
            snapshot = accumulate_managed_agents_event(snapshot, event)
            if event.type == "event_delta":
                texts.append("".join(block.text for block in snapshot.content))
        self.assertEqual(texts[-1], ANSWER)
        self.assertTrue(all(ANSWER.startswith(text) for text in texts))
        self.assertEqual(snapshot.to_dict(), of_kind(seen, "agent.message")[0].to_dict())

    def test_thinking_is_previewed_when_asked_for(self) -> None:
        seen = self.turn(self.session("greeting"), message("hello"), event_deltas=ALL_PREVIEWS)

        started = [(event.event.type, event.event.id) for event in seen if event.type == "event_start"]
        (thinking,), (answer,) = of_kind(seen, "agent.thinking"), of_kind(seen, "agent.message")
        self.assertEqual(started, [("agent.thinking", thinking.id), ("agent.message", answer.id)])

    def test_previews_come_only_when_asked_for(self) -> None:
        seen = self.turn(self.session("greeting"), message("hello"))
        self.assertEqual([kind for kind in kinds(seen) if kind in PREVIEWS], [])

    def test_the_list_equals_the_stream_without_previews(self) -> None:
        session = self.session("greeting")
        with self.stream(session, event_deltas=ALL_PREVIEWS) as stream:
            self.send(session, message("hello"))
            seen = self.read(stream, is_idle)
            self.send(session, message("and once more"))
            seen += self.read(stream, is_idle)

        self.assertEqual([event.to_dict() for event in self.all_events(session)], durable(seen))
        self.assertEqual(said(seen), [ANSWER, "and once more"])

    def test_events_are_numbered_without_gaps(self) -> None:
        session = self.session("greeting")
        self.turn(session, message("hello"))
        self.turn(session, message("and once more"))
        numbers = [event.seq for event in self.all_events(session)]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_every_event_has_the_shape_that_the_client_declares(self) -> None:
        session = self.session("greeting")
        self.turn(session, message("hello"))
        with wire.RawStream(self.tenure, session.id, query="?after=0") as stream:
            last = len(self.all_events(session))
            frames = stream.up_to(last)
        shapes = event_shapes()
        for frame in frames:
            self.assertEqual(frame.event, frame.data["type"])
            if frame.event in shapes:
                shapes[frame.event].validate_python(frame.data)
        self.assertIn("agent.message", [frame.event for frame in frames])

    def test_a_cut_answer_is_reset_and_the_retry_has_an_id_of_its_own(self) -> None:
        session = self.session("overloaded-once")
        seen = self.turn(session, message("hello"), event_deltas=["agent.message"])

        started = [event.event.id for event in seen if event.type == "event_start"]
        ends = of_kind(seen, "span.model_request_end")
        (answer,) = of_kind(seen, "agent.message")
        self.assertEqual([end.is_error for end in ends], [True, False])
        self.assertEqual(ends[0].model_usage.output_tokens, 0)
        self.assertEqual(len(set(started)), 2)
        self.assertEqual(started[-1], answer.id)
        self.assertEqual(said(seen), ["The whole answer."])

    def test_a_message_sent_with_the_session_starts_the_first_turn(self) -> None:
        session = self.session("greeting", initial_events=[message("hello")])
        with wire.RawStream(self.tenure, session.id, query="?after=0") as stream:
            frames = iter(stream.frames())
            seen = next(frame for frame in frames if frame.event == "session.status_idle" and frame.data["seq"] > 1)
        self.assertEqual(seen.data["stop_reason"]["type"], "end_turn")
        self.assertEqual(said(self.all_events(session)), [ANSWER])


if __name__ == "__main__":
    unittest.main()
