// Sessions in each phase that a page can show.
export async function populate(house) {
  const coder = await house.agent("script/demo-coder", {
    name: "coder",
    tools: [
      { type: "agent_toolset_20260401", configs: [{ name: "bash", effect: "idempotent" }, { name: "write", permission_policy: { type: "always_ask" } }] },
      { type: "tenure_toolset" },
    ],
  });
  const echo = await house.agent("script/echo");
  const needs = await house.session(coder, "The test suite fails. Find out why, mend it, and write a release note.", { title: "Fix flaky checkout test", limits: { steps: 40 } });
  await house.call("PUT", `/v1/sessions/${needs}/files/content?path=add.sh`, 'echo $(($1 - $2))\n');
  await house.call("PUT", `/v1/sessions/${needs}/files/content?path=test.sh`, '[ "$(sh add.sh 2 3)" = 5 ] && echo ok || { echo "add 2 3 should be 5"; exit 1; }\n');
  const done = await house.session(echo, "# A title\n\nSome **strong** words, `code`, and a list:\n\n- one\n- two\n\n```sh\ncargo test --workspace\n```", { title: "Summarise open incidents" });
  await house.call("PUT", `/v1/sessions/${done}/files/content?path=notes/report.md`, "# Report\n\nNothing is on fire.\n");
  await house.call("PUT", `/v1/sessions/${done}/files/content?path=data.bin`, "\u0000\u0001binary");
  await house.phase(done, "idle");
  const paused = await house.session(echo, null, { title: "Triage inbox" });
  await house.call("POST", `/v1/sessions/${paused}/pause`, {});
  const cancelled = await house.session(echo, null, { title: "Bump dependencies" });
  await house.call("POST", `/v1/sessions/${cancelled}/cancel`, {});
  await house.session(echo, null, { title: "" });
  await house.phase(needs, "waiting", "needs_you");
  return { coder, echo, needs, done, paused, cancelled };
}
