"""The user stops what the agent is doing, and goes on."""

from case import ASKING_TOOLSET, TOOLSET, Case, is_idle, is_kind, message, of_kind, said

INTERRUPT = {"type": "user.interrupt"}


class Interrupt(Case):
    def test_an_interrupted_answer_is_dropped_and_the_session_goes_on(self) -> None:
        session = self.session("silent-after-start")
        with self.stream(session, event_deltas=["agent.message"]) as stream:
            self.send(session, message("never stop"))
            seen = self.read(stream, lambda event: event.type == "event_delta")
            self.send(session, INTERRUPT)
            seen = self.read(stream, is_idle)
            self.assertEqual(seen[-1].stop_reason.type, "end_turn")
            (end,) = of_kind(seen, "span.model_request_end")
            self.assertTrue(end.is_error)
            self.assertEqual(said(seen), [])
            self.send(session, message("still there?"))
            seen = self.read(stream, is_idle)
        self.assertIn("still there?", said(seen)[-1])

    def test_an_interrupted_command_gets_a_result_and_the_session_goes_on(self) -> None:
        session = self.session("long-command", tools=[TOOLSET])
        with self.stream(session) as stream:
            self.send(session, message("go"))
            seen = self.read(stream, is_kind("session.tool_started"))
            (call,) = of_kind(seen, "agent.tool_use")
            self.send(session, INTERRUPT)
            seen = self.read(stream, is_idle)
        (result,) = of_kind(seen, "agent.tool_result")
        self.assertEqual((result.tool_use_id, result.is_error), (call.id, True))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")
        seen = self.turn(session, message("and now?"))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")

    def test_an_interrupt_closes_calls_that_wait_for_a_person(self) -> None:
        session = self.session("shell", tools=[ASKING_TOOLSET])
        (call,) = of_kind(self.turn(session, message("go")), "agent.tool_use")
        seen = self.turn(session, INTERRUPT)
        (result,) = of_kind(seen, "agent.tool_result")
        self.assertEqual((result.tool_use_id, result.is_error), (call.id, True))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")

    def test_an_interrupt_of_an_idle_session_changes_nothing(self) -> None:
        session = self.session("greeting")
        (stored,) = self.send(session, INTERRUPT)
        self.assertEqual(stored.type, "user.interrupt")
        seen = self.turn(session, message("hello"))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")
