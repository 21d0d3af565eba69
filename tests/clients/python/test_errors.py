"""What goes wrong arrives as the exception class that the client has for it, with code, hint and request id."""

import anthropic

import wire
from case import Case, message

NOBODY = "sesn_00000000000000000000000000000000"


class Errors(Case):
    def check(self, error: anthropic.APIStatusError, kind: str) -> None:
        self.assertEqual(error.type, kind)
        self.assertTrue(error.api_message)
        self.assertEqual(error.body["request_id"], error.request_id)
        fields = error.body["error"]
        for name in ("code", "hint", "docs"):
            self.assertTrue(fields[name], name)
        self.assertIn(fields["code"], fields["docs"])

    def test_an_unknown_session_is_not_found(self) -> None:
        for call in (
            lambda: self.client.beta.sessions.retrieve(NOBODY),
            lambda: self.client.beta.sessions.events.list(NOBODY),
            lambda: self.client.beta.sessions.events.send(NOBODY, events=[message("hello")]),
            lambda: self.client.beta.sessions.events.stream(NOBODY),
            lambda: self.client.beta.sessions.delete(NOBODY),
        ):
            with self.assertRaises(anthropic.NotFoundError) as raised:
                call()
            self.check(raised.exception, "not_found_error")

    def test_an_id_that_is_none_is_not_found(self) -> None:
        with self.assertRaises(anthropic.NotFoundError) as raised:
            self.client.beta.sessions.retrieve("sesn_no-such-thing")
        self.check(raised.exception, "not_found_error")

    def test_a_wrong_key_is_an_authentication_error(self) -> None:
        with self.assertRaises(anthropic.AuthenticationError) as raised:
            self.tenure.client(api_key="wrong").beta.agents.list()
        self.check(raised.exception, "authentication_error")

    def test_a_bearer_token_is_taken_in_place_of_a_key(self) -> None:
        client = self.tenure.client(api_key=None, auth_token=self.tenure.key)
        self.assertIsNotNone(client.beta.agents.list().data)

    def test_a_malformed_event_is_a_bad_request_with_its_place(self) -> None:
        session = self.session("echo")
        mistakes = [
            ({"type": "user.message"}, "content"),
            ({"type": "user.message", "content": []}, "content"),
            ({"type": "user.message", "content": [{"type": "text"}]}, "content"),
            ({"type": "user.shout", "content": []}, "type"),
            ({"type": "user.tool_confirmation", "tool_use_id": "x", "result": "maybe"}, "result"),
        ]
        for event, place in mistakes:
            with self.subTest(event=event), self.assertRaises(anthropic.BadRequestError) as raised:
                self.send(session, event)
            self.check(raised.exception, "invalid_request_error")
            self.assertIn(place, raised.exception.api_message)

    def test_a_batch_with_one_mistake_changes_nothing(self) -> None:
        session = self.session("echo")
        before = self.all_events(session)
        with self.assertRaises(anthropic.BadRequestError):
            self.send(session, message("good"), {"type": "user.shout"})
        self.assertEqual(len(self.all_events(session)), len(before))

    def test_a_body_over_the_limit_is_too_large(self) -> None:
        session = self.session("echo")
        with self.assertRaises(anthropic.ContentTooLargeError) as raised:
            self.client.with_options(max_retries=0).beta.sessions.events.send(
                session.id, events=[message("x" * (33 * 1024 * 1024))]
            )
        self.check(raised.exception, "request_too_large")

    def test_o_090_deep_json_is_refused_and_the_server_lives(self) -> None:
        body = b'{"name":"deep","model":"script/echo","metadata":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
        reply = wire.request(self.tenure, "POST", "/v1/agents", body=body)
        self.assertEqual((reply.status, reply.json["error"]["type"]), (400, "invalid_request_error"))
        self.assertTrue(reply.headers["request-id"])
        self.assertIsNotNone(self.client.beta.agents.list().data)

    def test_broken_json_is_refused(self) -> None:
        for body in (b"{", b"", b"[]", b'{"name": "\xff"}', b"null"):
            reply = wire.request(self.tenure, "POST", "/v1/agents", body=body)
            self.assertEqual((reply.status, reply.json["error"]["type"]), (400, "invalid_request_error"), body)

    def test_unknown_routes_and_methods_get_errors_of_the_same_form(self) -> None:
        for method, path, status in (("GET", "/v1/nothing", 404), ("PATCH", "/v1/agents", 405)):
            reply = wire.request(self.tenure, method, path)
            self.assertEqual((reply.status, reply.json["type"]), (status, "error"), path)
            self.assertEqual(reply.json["request_id"], reply.headers["request-id"])

    def test_a_page_cursor_that_is_none_is_a_bad_request(self) -> None:
        for limit, page in ((2, "nonsense"), (0, None), (-1, None)):
            with self.subTest(limit=limit, page=page), self.assertRaises(anthropic.BadRequestError) as raised:
                self.client.beta.agents.list(limit=limit, **({"page": page} if page else {}))
            self.check(raised.exception, "invalid_request_error")
