"""An agent loop of your own, with nothing but Python's standard library.

    tenure dev &                                  # one worker must run: it wakes timers and carries out cancels
    python3 examples/loop.py counters ./out       # a queue, and where this loop puts its files

It counts as far as the user asks, one durable step after the other. Kill it at any moment and start it again, here
or elsewhere: it goes on where the log ends. A real loop would call a model where `think` decides.
"""
import json, os, sys, threading, urllib.error, urllib.request

URL = os.environ.get("TENURE_URL", "http://127.0.0.1:7373")
KEY = os.environ["TENURE_API_KEY"]
LEASE_MS = int(os.environ.get("LEASE_MS", "30000"))  # how long a killed loop keeps others waiting


class Lost(Exception):
    """The lease is somebody else's now: drop what was not committed."""


def post(path, **body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"x-api-key": KEY})
    try:
        return json.load(urllib.request.urlopen(request, timeout=90))
    except urllib.error.HTTPError as error:
        problem = json.load(error)["error"]
        raise Lost() if problem["code"] in ("lease_lost", "seq_conflict") else SystemExit(problem["message"])


def think(events):
    """What comes next, from the log alone: a number to write, or None when it has counted far enough."""
    asked, done = 0, 0
    for event in events:
        if event["type"] == "user.message":
            asked, done = int(event["content"][0]["text"]), 0
        done += event["type"] == "agent.tool_result"
    return done + 1 if done < asked else None


def work(lease, folder):
    path, events = f"/v1/leases/{lease['id']}", lease["events"]
    over = threading.Event()

    def renew():  # a long step must not lose its lease
        while not over.wait(LEASE_MS / 3000):
            post(path + "/renew", lease_ms=LEASE_MS)

    threading.Thread(target=renew, daemon=True).start()
    try:
        while lease["held"]:
            if lease["due"] == "tools":  # intent is committed; a step that was killed here is done again
                call = lease["calls"][0]["tool_use_id"]
                number = next(event["input"]["number"] for event in events if event["id"] == call)
                with open(os.path.join(folder, f"{number}.txt"), "w") as file:
                    file.write(f"{number}\n")
                new, then = [{"type": "agent.tool_result", "tool_use_id": call, "content": "written"}], "keep"
            elif (number := think(events)) is not None:
                call = {"name": "write", "input": {"number": number}, "effect": "idempotent"}
                new, then = [{"type": "agent.tool_use", **call}], "keep"
            else:
                new, then = [{"type": "agent.message", "content": "I am done."}], "idle"
            lease = post(path + "/checkpoint", seq=lease["seq"], events=new, then=then, lease_ms=LEASE_MS)
            events += lease["events"]
    finally:
        over.set()


if __name__ == "__main__":
    queue, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    while True:
        for lease in post(f"/v1/queues/{queue}/leases", worker="loop.py", wait_ms=20000, lease_ms=LEASE_MS, tail=1000)["data"]:
            try:
                work(lease, folder)
            except Lost:
                pass
