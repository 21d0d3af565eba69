"""Agents: made, changed into new versions, listed, archived."""

import uuid

from anthropic import BadRequestError, ConflictError, NotFoundError
from anthropic.types.beta import BetaManagedAgentsAgent
from pydantic import TypeAdapter

import wire
from case import ASKING_TOOLSET, Case

WEATHER = {
    "type": "custom",
    "name": "get_weather",
    "description": "Says what the weather is like in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Agents(Case):
    def create(self, **fields):
        return self.client.beta.agents.create(**{"name": "reviewer", "model": "script/echo", **fields})

    def test_an_agent_comes_back_as_it_was_made(self) -> None:
        made = self.create(
            description="Reads changes.",
            system="You read changes.",
            metadata={"team": "tools"},
            tools=[ASKING_TOOLSET, WEATHER],
        )
        self.assertEqual((made.name, made.version, made.type), ("reviewer", 1, "agent"))
        self.assertEqual((made.description, made.system), ("Reads changes.", "You read changes."))
        self.assertEqual(made.metadata, {"team": "tools"})
        self.assertEqual(made.model.id, "script/echo")
        self.assertIsNone(made.archived_at)
        toolset, custom = made.tools
        bash = next(config for config in toolset.configs if config.name == "bash")
        self.assertEqual(bash.permission_policy.type, "always_ask")
        self.assertEqual((custom.name, custom.input_schema.required), ("get_weather", ["city"]))
        self.assertEqual(self.client.beta.agents.retrieve(made.id).to_dict(), made.to_dict())

    def test_an_agent_has_the_shape_that_the_client_declares(self) -> None:
        made = self.create(tools=[ASKING_TOOLSET, WEATHER])
        raw = wire.request(self.tenure, "GET", f"/v1/agents/{made.id}").json
        TypeAdapter(BetaManagedAgentsAgent).validate_python(raw)

    def test_a_model_may_be_an_object(self) -> None:
        self.assertEqual(self.create(model={"id": "script/echo"}).model.id, "script/echo")

    def test_an_update_makes_a_version_and_keeps_the_old_one(self) -> None:
        made = self.create(system="one", metadata={"a": "1", "b": "2"})
        changed = self.client.beta.agents.update(made.id, version=1, system="two", metadata={"a": None, "c": "3"})
        self.assertEqual((changed.id, changed.version, changed.system), (made.id, 2, "two"))
        self.assertEqual(changed.name, "reviewer", "what is left out stays")
        self.assertEqual(changed.metadata, {"b": "2", "c": "3"}, "null deletes a key")
        self.assertEqual(self.client.beta.agents.retrieve(made.id).version, 2)
        self.assertEqual(self.client.beta.agents.retrieve(made.id, version=1).system, "one")
        versions = list(self.client.beta.agents.versions.list(made.id, limit=1))
        self.assertEqual([(agent.version, agent.system) for agent in versions], [(2, "two"), (1, "one")])

    def test_null_clears_what_may_be_cleared(self) -> None:
        made = self.create(system="one", description="text", tools=[WEATHER])
        changed = self.client.beta.agents.update(made.id, system=None, description=None, tools=None)
        self.assertFalse(changed.system)
        self.assertFalse(changed.description)
        self.assertEqual(changed.tools, [])

    def test_an_update_of_an_old_version_is_refused(self) -> None:
        made = self.create()
        self.client.beta.agents.update(made.id, version=1, system="two")
        with self.assertRaises(ConflictError):
            self.client.with_options(max_retries=0).beta.agents.update(made.id, version=1, system="three")
        self.assertEqual(self.client.beta.agents.retrieve(made.id).system, "two")

    def test_a_session_keeps_the_version_that_it_was_made_with(self) -> None:
        made = self.create(system="one")
        environment = self.client.beta.environments.create(name="pinned", config={"type": "cloud"})
        session = self.client.beta.sessions.create(agent=made.id, environment_id=environment.id)
        self.client.beta.agents.update(made.id, system="two")
        kept = self.client.beta.sessions.retrieve(session.id).agent
        self.assertEqual((kept.version, kept.system), (1, "one"))
        older = self.client.beta.sessions.create(
            agent={"type": "agent", "id": made.id, "version": 1}, environment_id=environment.id
        )
        self.assertEqual(older.agent.version, 1)
        newest = self.client.beta.sessions.create(agent=made.id, environment_id=environment.id)
        self.assertEqual((newest.agent.version, newest.agent.system), (2, "two"))

    def test_an_archived_agent_is_hidden_and_starts_nothing(self) -> None:
        made = self.create(name=f"archived-{uuid.uuid4()}")
        archived = self.client.beta.agents.archive(made.id)
        self.assertIsNotNone(archived.archived_at)
        self.assertNotIn(made.id, [agent.id for agent in self.client.beta.agents.list()])
        self.assertIn(made.id, [agent.id for agent in self.client.beta.agents.list(include_archived=True)])
        self.assertEqual(self.client.beta.agents.retrieve(made.id).id, made.id)
        environment = self.client.beta.environments.create(name="archived", config={"type": "cloud"})
        with self.assertRaises((BadRequestError, ConflictError)):
            self.client.with_options(max_retries=0).beta.sessions.create(agent=made.id, environment_id=environment.id)

    def test_the_list_can_be_narrowed_to_a_time(self) -> None:
        first, second = self.create(), self.create()
        since = [agent.id for agent in self.client.beta.agents.list(created_at_gte=second.created_at)]
        until = [agent.id for agent in self.client.beta.agents.list(created_at_lte=first.created_at)]
        self.assertIn(second.id, since)
        self.assertIn(first.id, until)
        if first.created_at < second.created_at:
            self.assertNotIn(first.id, since)
            self.assertNotIn(second.id, until)

    def test_the_list_comes_in_pages_newest_first(self) -> None:
        made = [self.create(name=f"paged-{number}").id for number in range(5)]
        page = self.client.beta.agents.list(limit=2)
        self.assertEqual(([agent.id for agent in page.data], page.has_next_page()), ([made[4], made[3]], True))
        listed = [agent.id for agent in self.client.beta.agents.list(limit=2) if agent.id in made]
        self.assertEqual(listed, made[::-1])

    def test_pages_do_not_shift_when_something_new_is_made(self) -> None:
        made = [self.create(name=f"shift-{number}").id for number in range(4)]
        page = self.client.beta.agents.list(limit=2)
        self.create(name="late")
        self.assertEqual([agent.id for agent in page.get_next_page().data], [made[1], made[0]])

    def test_an_agent_that_does_not_exist_is_not_found(self) -> None:
        with self.assertRaises(NotFoundError):
            self.client.beta.agents.retrieve("agent_00000000000000000000000000000000")
        with self.assertRaises(NotFoundError):
            self.client.beta.agents.retrieve(self.create().id, version=7)

    def test_an_agent_with_a_mistake_is_refused_with_its_place(self) -> None:
        mistakes = [
            ({"name": ""}, "name"),
            ({"model": "nobody/knows-this"}, "model"),
            ({"tools": [{"type": "agent_toolset_19990101"}]}, "tools"),
            ({"tools": [{**WEATHER, "name": ""}]}, "tools"),
            ({"metadata": {"a": 1}}, "metadata"),
        ]
        for fields, place in mistakes:
            with self.subTest(place=place, fields=fields), self.assertRaises(BadRequestError) as refused:
                self.create(**fields)
            self.assertIn(place, refused.exception.api_message)
            self.assertTrue(refused.exception.body["error"]["code"])
