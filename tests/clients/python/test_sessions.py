"""Sessions: made, named, listed, archived, deleted."""

from anthropic import APIStatusError, BadRequestError, NotFoundError
from anthropic.types.beta import BetaManagedAgentsSession
from pydantic import TypeAdapter

import wire
from case import Case, event_shapes, message


class Sessions(Case):
    def test_a_session_starts_idle_and_comes_back_as_it_was_made(self) -> None:
        session = self.session("echo", title="a title", metadata={"ticket": "12"})
        self.assertEqual((session.status, session.type, session.title), ("idle", "session", "a title"))
        self.assertEqual((session.metadata, session.agent.name), ({"ticket": "12"}, "echo"))
        self.assertEqual(self.client.beta.sessions.retrieve(session.id).to_dict(), session.to_dict())

    def test_a_session_has_the_shape_that_the_client_declares(self) -> None:
        session = self.session("echo")
        shape = TypeAdapter(BetaManagedAgentsSession)
        shape.validate_python(wire.request(self.tenure, "GET", f"/v1/sessions/{session.id}").json)
        self.turn(session, message("hello"))
        shape.validate_python(wire.request(self.tenure, "GET", f"/v1/sessions/{session.id}").json)

    def test_what_was_used_is_counted(self) -> None:
        session = self.session("greeting")
        self.turn(session, message("hello"))
        usage = self.client.beta.sessions.retrieve(session.id).usage
        self.assertEqual((usage.input_tokens, usage.output_tokens), (100, 20))

    def test_what_was_used_is_told_before_the_turn_ends(self) -> None:
        session = self.session("greeting")
        seen = self.turn(session, message("hello"))
        *_, told, idle = seen
        self.assertEqual((told.type, idle.type), ("session.usage", "session.status_idle"))
        event_shapes()["session.usage"].validate_python(told.to_dict())
        self.assertEqual((told.usage.input_tokens, told.usage.output_tokens), (100, 20))
        used = self.client.beta.sessions.retrieve(session.id).usage
        self.assertEqual(told.usage.list_cost, used.list_cost)
        listed = self.all_events(session)
        self.assertEqual([event.to_dict() for event in listed if event.type == "session.usage"], [told.to_dict()])

    def test_changes_of_title_and_metadata_are_events(self) -> None:
        session = self.session("echo", metadata={"a": "1"})
        with self.stream(session) as stream:
            self.client.beta.sessions.update(session.id, title="new", metadata={"b": "2"})
            seen = [event for _, event in zip(range(2), stream)]
        for event in seen:
            self.assertEqual(event.type, "session.updated")
            event_shapes()["session.updated"].validate_python(event.to_dict())
        title, metadata = seen
        self.assertEqual((title.title, title.metadata), ("new", None))
        self.assertEqual((metadata.title, metadata.metadata), (None, {"a": "1", "b": "2"}))
        self.assertEqual([event.to_dict() for event in self.all_events(session)], [event.to_dict() for event in seen])

    def test_title_and_metadata_can_be_changed(self) -> None:
        session = self.session("echo", title="old", metadata={"a": "1", "b": "2"})
        changed = self.client.beta.sessions.update(session.id, title="new", metadata={"a": None, "c": "3"})
        self.assertEqual((changed.title, changed.metadata), ("new", {"b": "2", "c": "3"}))
        self.assertEqual(self.client.beta.sessions.retrieve(session.id).title, "new")

    def test_the_list_can_be_narrowed_to_an_agent(self) -> None:
        first, second = self.session("echo"), self.session("echo")
        listed = [session.id for session in self.client.beta.sessions.list(agent_id=first.agent.id)]
        self.assertEqual(listed, [first.id])
        self.assertNotIn(second.id, listed)

    def test_the_list_comes_in_pages_newest_first(self) -> None:
        made = [self.session("echo").id for _ in range(4)]
        listed = [session.id for session in self.client.beta.sessions.list(limit=3) if session.id in made]
        self.assertEqual(listed, made[::-1])

    def test_an_archived_session_takes_no_more_messages_but_can_be_read(self) -> None:
        session = self.session("echo")
        self.turn(session, message("hello"))
        archived = self.client.beta.sessions.archive(session.id)
        self.assertIsNotNone(archived.archived_at)
        self.assertNotIn(session.id, [other.id for other in self.client.beta.sessions.list()])
        self.assertIn(session.id, [other.id for other in self.client.beta.sessions.list(include_archived=True)])
        self.assertIn("agent.message", [event.type for event in self.all_events(session)])
        with self.assertRaises(APIStatusError) as refused:
            self.client.with_options(max_retries=0).beta.sessions.events.send(session.id, events=[message("more")])
        self.assertIn(refused.exception.status_code, (400, 409))

    def test_a_deleted_session_is_gone(self) -> None:
        session = self.session("echo")
        deleted = self.client.beta.sessions.delete(session.id)
        self.assertEqual((deleted.id, deleted.type), (session.id, "session_deleted"))
        for read in (self.client.beta.sessions.retrieve, self.client.beta.sessions.events.list):
            with self.assertRaises(NotFoundError):
                read(session.id)

    def test_an_open_stream_is_told_that_its_session_is_deleted(self) -> None:
        session = self.session("echo")
        with self.stream(session) as stream:
            self.client.beta.sessions.delete(session.id)
            (gone,) = list(stream)
        self.assertEqual(gone.type, "session.deleted")
        event_shapes()["session.deleted"].validate_python(gone.to_dict())

    def test_a_session_of_unknown_parts_is_refused(self) -> None:
        agent = self.client.beta.agents.create(name="any", model="script/echo")
        environment = self.client.beta.environments.create(name="any", config={"type": "cloud"})
        nobody = "00000000000000000000000000000000"
        for parts in ((f"agent_{nobody}", environment.id), (agent.id, f"env_{nobody}")):
            with self.subTest(parts=parts), self.assertRaises((BadRequestError, NotFoundError)):
                self.client.beta.sessions.create(agent=parts[0], environment_id=parts[1])

    def test_events_can_be_listed_by_type_and_backwards(self) -> None:
        session = self.session("echo")
        self.turn(session, message("one"))
        self.turn(session, message("two"))
        listing = self.client.beta.sessions.events
        forwards = [event.id for event in listing.list(session.id, limit=3)]
        backwards = [event.id for event in listing.list(session.id, limit=3, order="desc")]
        self.assertEqual(backwards, forwards[::-1])
        spoken = listing.list(session.id, types=["user.message", "agent.message"], limit=1)
        self.assertEqual([event.type for event in spoken], ["user.message", "agent.message"] * 2)
