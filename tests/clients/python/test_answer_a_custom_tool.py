"""A tool that the client itself runs."""

from anthropic import BadRequestError

from case import Case, is_idle, message, of_kind, said

WEATHER = {
    "type": "custom",
    "name": "get_weather",
    "description": "Says what the weather is like in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def result(call_id: str, words: str, **fields: object) -> dict:
    content = [{"type": "text", "text": words}]
    return {"type": "user.custom_tool_result", "custom_tool_use_id": call_id, "content": content, **fields}


class AnswerACustomTool(Case):
    def called(self):
        """A session that waits for the client's answer, and the call."""
        session = self.session("custom-tool", tools=[WEATHER])
        seen = self.turn(session, message("how is the weather?"))
        (call,) = of_kind(seen, "agent.custom_tool_use")
        self.assertEqual((call.name, call.input), ("get_weather", {"city": "Utrecht"}))
        self.assertEqual((seen[-1].stop_reason.type, seen[-1].stop_reason.event_ids), ("requires_action", [call.id]))
        return session, call.id

    def test_the_answer_reaches_the_model(self) -> None:
        session, call = self.called()
        seen = self.turn(session, result(call, "light rain"))
        self.assertEqual(said(seen), ["The tool answered: light rain"])
        self.assertEqual(seen[-1].stop_reason.type, "end_turn")
        (answer,) = of_kind(self.all_events(session), "user.custom_tool_result")
        self.assertEqual(answer.custom_tool_use_id, call)

    def test_a_failure_of_the_tool_reaches_the_model_as_one(self) -> None:
        session, call = self.called()
        seen = self.turn(session, result(call, "no such city", is_error=True))
        self.assertEqual(said(seen), ["The tool failed: no such city"])

    def test_an_answer_sent_twice_counts_once(self) -> None:
        session, call = self.called()
        with self.stream(session) as stream:
            (stored,) = self.send(session, result(call, "light rain"))
            (again,) = self.send(session, result(call, "a storm"))
            seen = self.read(stream, is_idle)
        self.assertEqual(again.id, stored.id)
        self.assertEqual(said(seen), ["The tool answered: light rain"])

    def test_an_answer_to_a_call_that_does_not_exist_is_refused(self) -> None:
        session, call = self.called()
        with self.assertRaises(BadRequestError) as refused:
            self.send(session, result("sevt_00000000000000000000000000000000", "light rain"))
        self.assertEqual(refused.exception.type, "invalid_request_error")
        seen = self.turn(session, result(call, "light rain"))
        self.assertEqual(said(seen), ["The tool answered: light rain"], "the session is not disturbed")
