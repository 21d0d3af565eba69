"""A request that is sent again under the same Idempotency-Key is done once."""

import threading
import uuid

from anthropic import UnprocessableEntityError

from case import Case, is_idle, message, of_kind, said


def keyed(key: str) -> dict:
    return {"extra_headers": {"Idempotency-Key": key}}


class Idempotency(Case):
    def test_the_same_creation_again_gives_the_same_thing(self) -> None:
        key = str(uuid.uuid4())
        agents = [self.client.beta.agents.create(name="once", model="script/echo", **keyed(key)) for _ in range(2)]
        self.assertEqual(agents[0].to_dict(), agents[1].to_dict())

    def test_the_same_key_with_another_body_is_refused(self) -> None:
        key = str(uuid.uuid4())
        self.client.beta.agents.create(name="once", model="script/echo", **keyed(key))
        with self.assertRaises(UnprocessableEntityError) as refused:
            self.client.beta.agents.create(name="twice", model="script/echo", **keyed(key))
        self.assertEqual(refused.exception.type, "invalid_request_error")

    def test_a_key_means_nothing_on_another_route(self) -> None:
        key = str(uuid.uuid4())
        agent = self.client.beta.agents.create(name="once", model="script/echo", **keyed(key))
        environment = self.client.beta.environments.create(name="once", config={"type": "cloud"}, **keyed(key))
        self.assertNotEqual(agent.id, environment.id)

    def test_a_session_is_made_once(self) -> None:
        key = str(uuid.uuid4())
        agent = self.client.beta.agents.create(name="once", model="script/echo")
        environment = self.client.beta.environments.create(name="once", config={"type": "cloud"})
        made = [
            self.client.beta.sessions.create(agent=agent.id, environment_id=environment.id, **keyed(key)).id
            for _ in range(2)
        ]
        self.assertEqual(made[0], made[1])
        self.assertEqual([session.id for session in self.client.beta.sessions.list(agent_id=agent.id)], made[:1])

    def test_a_message_sent_twice_is_answered_once(self) -> None:
        session, key = self.session("echo"), str(uuid.uuid4())
        with self.stream(session) as stream:
            first = self.send(session, message("hello"), **keyed(key))
            self.read(stream, is_idle)
            again = self.send(session, message("hello"), **keyed(key))
        self.assertEqual([event.id for event in again], [event.id for event in first])
        self.turn(session, message("and now"))
        events = self.all_events(session)
        self.assertEqual(len(of_kind(events, "user.message")), 2)
        self.assertEqual(said(events), ["hello", "and now"])

    def test_two_of_the_same_at_once_are_one_message(self) -> None:
        session, key = self.session("echo"), str(uuid.uuid4())
        start, ids = threading.Barrier(2), []

        def send() -> None:
            start.wait()
            ids.extend(event.id for event in self.send(session, message("hello"), **keyed(key)))

        with self.stream(session) as stream:
            threads = [threading.Thread(target=send) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.read(stream, is_idle)
        self.assertEqual(len(ids), 2)
        self.assertEqual(len(set(ids)), 1)
        self.assertEqual(len(of_kind(self.all_events(session), "user.message")), 1)
