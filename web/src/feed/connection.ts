// One connection to the server for several topics: opened again when the topics change or it breaks,
// each topic from where it was. Runs in the shared worker, or in the page where there is none.

export type Status = { state: "live" | "connecting" | "reconnecting" | "signed_out"; tries: number; since: number };
export type Message = { topic: string; type: string; id?: string | null; event?: unknown; sessions?: string[]; more?: boolean };

/** Without a byte for so long, the connection is dead: the server writes every five seconds. */
const SILENCE_MS = 15_000;
const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 10_000;
/** Topics that come and go together, such as at a change of the page, open one connection. */
const SETTLE_MS = 30;

type Topic = { seq: number | null; cursor: string | null };

export class Connection {
  private topics = new Map<string, Topic>();
  private abort: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private tries = 0;
  private status: Status = { state: "connecting", tries: 0, since: Date.now() };
  private pageKey = "";

  constructor(
    private readonly deliver: (message: Message) => void,
    private readonly tell: (status: Status) => void,
  ) {}

  get now(): Status {
    return this.status;
  }

  setPageKey(key: string): void {
    if (key === this.pageKey) return;
    this.pageKey = key;
    this.again(0);
  }

  /** Adds a topic; of two readers the one that is behind decides where it goes on. */
  add(name: string, after: number | null): void {
    const known = this.topics.get(name);
    if (known && (after === null || known.seq === null)) {
      if (name === "fleet") return;
    }
    const seq = known?.seq != null && after != null ? Math.min(known.seq, after) : after;
    // The new reader has nothing of an open message: it is sent again, and replaces what others have.
    this.topics.set(name, { seq, cursor: seq === null ? null : String(seq) });
    this.again(SETTLE_MS);
  }

  remove(name: string): void {
    if (this.topics.delete(name)) this.again(SETTLE_MS);
  }

  private again(wait: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.run(), wait);
  }

  private say(state: Status["state"]): void {
    if (state !== this.status.state || this.tries !== this.status.tries) {
      const since = state === this.status.state ? this.status.since : Date.now();
      this.status = { state, tries: this.tries, since };
      this.tell(this.status);
    }
  }

  private async run(): Promise<void> {
    this.abort?.abort();
    if (this.topics.size === 0 || this.pageKey === "") return;
    const abort = new AbortController();
    this.abort = abort;
    let silence: ReturnType<typeof setTimeout> | undefined;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort("silence"), SILENCE_MS);
    };
    try {
      alive();
      const query = [...this.topics].map(([name, topic]) => "topics[]=" + encodeURIComponent(topic.cursor ? `${name}:${topic.cursor}` : name));
      const response = await fetch(`/v1/stream?${query.join("&")}`, {
        headers: { "x-tenure-page": this.pageKey },
        credentials: "same-origin",
        cache: "no-store",
        signal: abort.signal,
      });
      if (response.status === 401) {
        this.tries = 0;
        this.say("signed_out");
        return;
      }
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      this.tries = 0;
      this.say("live");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        alive();
        rest += value;
        const frames = rest.split("\n\n");
        rest = frames.pop() ?? "";
        for (const frame of frames) {
          const data = frame.split("\n").find((line) => line.startsWith("data: "));
          if (data && !abort.signal.aborted) this.take(JSON.parse(data.slice(6)) as Message);
        }
      }
      throw new Error("the stream ended");
    } catch {
      // Another run has taken over.
      if (this.abort !== abort) return;
      this.tries += 1;
      this.say("reconnecting");
      const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.tries - 1, 10));
      this.again(wait * (0.5 + Math.random() / 2));
    } finally {
      clearTimeout(silence);
    }
  }

  private take(message: Message): void {
    const topic = this.topics.get(message.topic);
    if (!topic) return;
    if (message.type === "event" && message.id) {
      topic.cursor = message.id;
      const seq = Number(message.id.split(".")[0]);
      if (Number.isFinite(seq)) topic.seq = seq;
    }
    if (message.type === "gone" || message.type === "end") {
      this.topics.delete(message.topic);
    }
    this.deliver(message);
  }
}
