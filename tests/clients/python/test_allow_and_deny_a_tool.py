"""A command waits for a person, and runs or does not run as the person says."""

from case import ASKING_TOOLSET, TOOLSET, Case, is_idle, message, of_kind, said, text


def confirmation(call_id: str, result: str, **fields: str) -> dict:
    return {"type": "user.tool_confirmation", "tool_use_id": call_id, "result": result, **fields}


class AllowAndDenyATool(Case):
    def asked(self, scenario: str):
        """A session that waits for a person, and the ids that it waits for."""
        session = self.session(scenario, tools=[ASKING_TOOLSET])
        seen = self.turn(session, message("go"))
        self.assertEqual(seen[-1].stop_reason.type, "requires_action")
        calls = of_kind(seen, "agent.tool_use")
        self.assertEqual(seen[-1].stop_reason.event_ids, [call.id for call in calls])
        self.assertEqual({call.evaluated_permission for call in calls}, {"ask"})
        self.assertEqual(of_kind(seen, "agent.tool_result"), [], "nothing runs before the answer")
        return session, [call.id for call in calls]

    def test_a_tool_that_needs_no_approval_runs_at_once(self) -> None:
        seen = self.turn(self.session("shell", tools=[TOOLSET]), message("go"))
        (call,), (result,) = of_kind(seen, "agent.tool_use"), of_kind(seen, "agent.tool_result")
        self.assertEqual((call.name, call.evaluated_permission), ("bash", "allow"))
        self.assertEqual(result.tool_use_id, call.id)
        self.assertFalse(result.is_error)
        self.assertIn("the command ran", text(result))
        self.assertIn("the command ran", said(seen)[-1])

    def test_an_allowed_command_runs(self) -> None:
        session, (call,) = self.asked("shell")
        seen = self.turn(session, confirmation(call, "allow"))
        (result,) = of_kind(seen, "agent.tool_result")
        self.assertEqual((result.tool_use_id, bool(result.is_error)), (call, False))
        self.assertIn("the command ran", text(result))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")

    def test_a_denied_command_does_not_run_and_the_model_is_told_why(self) -> None:
        session, (call,) = self.asked("shell")
        seen = self.turn(session, confirmation(call, "deny", deny_message="not on a Friday"))
        (result,) = of_kind(seen, "agent.tool_result")
        self.assertEqual((result.tool_use_id, result.is_error), (call, True))
        self.assertIn("not on a Friday", said(seen)[-1])
        self.assertNotIn("the command ran", text(result))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")

    def test_answering_one_of_two_calls_asks_for_the_rest(self) -> None:
        session, (first, second) = self.asked("two-commands")
        with self.stream(session) as stream:
            self.send(session, confirmation(second, "deny"))
            seen = self.read(stream, is_idle)
            self.assertEqual(seen[-1].stop_reason.type, "requires_action")
            self.assertEqual(seen[-1].stop_reason.event_ids, [first])
            self.send(session, confirmation(first, "allow"))
            seen += self.read(stream, is_idle)
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")
        results = {result.tool_use_id: bool(result.is_error) for result in of_kind(seen, "agent.tool_result")}
        self.assertEqual(results, {first: False, second: True})
        self.assertEqual(said(seen), ["Both calls are answered."])

    def test_both_answers_in_one_request_are_taken_together(self) -> None:
        session, (first, second) = self.asked("two-commands")
        seen = self.turn(session, confirmation(first, "allow"), confirmation(second, "allow"))
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")
        self.assertEqual({result.tool_use_id for result in of_kind(seen, "agent.tool_result")}, {first, second})

    def test_the_first_of_two_answers_wins_and_the_second_gets_the_stored_event(self) -> None:
        session, (call,) = self.asked("shell")
        with self.stream(session) as stream:
            (stored,) = self.send(session, confirmation(call, "deny"))
            (again,) = self.send(session, confirmation(call, "allow"))
            seen = self.read(stream, is_idle)
        self.assertEqual((again.id, again.result), (stored.id, "deny"))
        self.assertEqual([event.result for event in of_kind(self.all_events(session), "user.tool_confirmation")], ["deny"])
        self.assertTrue(of_kind(seen, "agent.tool_result")[0].is_error)
