// A session as this page has it: rows in order, inputs that wait, and the open message. What comes
// from the server replaces and never appends twice, so that a reload shows the same.
import { get, sessionPath, type Page, type WireEvent } from "../api/client";
import { feed } from "../feed/feed";
import type { Message } from "../feed/connection";

/** Rows that are read at first, and per page of older ones. */
const PAGE = 80;
/** Most rows that a page at the end of the log holds; older ones are read again when asked for. */
const MOST = 600;

export type Live = { id: string; type: string; attempt: number; text: string };
export type State = {
  loading: boolean;
  error: unknown;
  events: WireEvent[];
  queued: WireEvent[];
  live: Live[];
  hasOlder: boolean;
  loadingOlder: boolean;
  lastSeq: number;
  ended: boolean;
  deleted: boolean;
};

const EMPTY: State = { loading: true, error: null, events: [], queued: [], live: [], hasOlder: false, loadingOlder: false, lastSeq: 0, ended: false, deleted: false };

export class SessionModel {
  state: State = EMPTY;
  private listeners = new Set<() => void>();
  private textListeners = new Set<() => void>();
  private rowListeners = new Set<() => void>();
  private stop: (() => void) | null = null;
  private older: string | null = null;
  private isFrameAsked = false;
  private isGone = false;

  constructor(readonly id: string) {}

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  snapshot = (): State => this.state;
  /** Called at most once per frame while text arrives. */
  onText = (listener: () => void): (() => void) => {
    this.textListeners.add(listener);
    return () => this.textListeners.delete(listener);
  };
  /** Called when rows came: what depends on the head is to be read again. */
  onRows = (listener: () => void): (() => void) => {
    this.rowListeners.add(listener);
    return () => this.rowListeners.delete(listener);
  };

  async open(around: number | null = null): Promise<void> {
    this.isGone = false;
    try {
      const page = await get<Page<WireEvent>>(sessionPath(this.id, `/events?order=desc&limit=${PAGE}`));
      if (this.isGone) return;
      const rows = page.data.filter((event) => event.seq != null).reverse();
      const queued = page.data.filter((event) => event.seq == null).reverse();
      this.older = page.next_page ?? null;
      const lastSeq = rows.at(-1)?.seq ?? 0;
      this.set({ ...EMPTY, loading: false, events: rows, queued, hasOlder: this.older !== null, lastSeq });
      this.follow();
      // A link to a row that lies further back.
      while (around !== null && this.older && (this.state.events[0]?.seq ?? 0) > around) await this.loadOlder();
    } catch (error) {
      this.set({ ...this.state, loading: false, error });
    }
  }

  follow(): void {
    this.stop?.();
    this.stop = feed.read(`session:${this.id}`, this.state.lastSeq, this.take);
  }

  /** Stops what comes; `follow` goes on from there. */
  pause(): void {
    this.stop?.();
    this.stop = null;
  }

  close(): void {
    this.isGone = true;
    this.pause();
  }

  async loadOlder(): Promise<void> {
    if (!this.older || this.state.loadingOlder) return;
    this.set({ ...this.state, loadingOlder: true });
    try {
      const page = await get<Page<WireEvent>>(sessionPath(this.id, `/events?order=desc&limit=${PAGE}&page=${encodeURIComponent(this.older)}`));
      this.older = page.next_page ?? null;
      const first = this.state.events[0]?.seq ?? Infinity;
      const rows = page.data.filter((event) => event.seq != null && event.seq < first).reverse();
      this.set({ ...this.state, events: [...rows, ...this.state.events], hasOlder: this.older !== null, loadingOlder: false });
    } catch (error) {
      this.set({ ...this.state, loadingOlder: false, error });
    }
  }

  /** Shows an input at once; the stream says the same. */
  sent(events: WireEvent[]): void {
    const isKnown = (event: WireEvent) => [...this.state.events, ...this.state.queued].some((known) => known.id === event.id);
    const fresh = events.filter((event) => event.seq == null && event.type === "user.message" && !isKnown(event));
    if (fresh.length > 0) this.set({ ...this.state, queued: [...this.state.queued, ...fresh] });
  }

  private set(state: State): void {
    this.state = state;
    this.listeners.forEach((listener) => listener());
  }

  private pending: WireEvent[] = [];
  private take = (message: Message): void => {
    switch (message.type) {
      case "event":
        this.takeEvent(message.event as WireEvent);
        break;
      case "end":
        this.flush();
        this.set({ ...this.state, ended: true, live: [] });
        this.rowListeners.forEach((listener) => listener());
        break;
      case "gone":
        this.set({ ...this.state, deleted: true, live: [] });
        break;
    }
  };

  private takeEvent(event: WireEvent): void {
    switch (event.type) {
      case "event_start": {
        this.flush();
        const start = event.event as { id: string; type: string };
        const attempt = Number(event.attempt ?? 1);
        const others = this.state.live.filter((live) => live.attempt === attempt && live.id !== start.id);
        this.set({ ...this.state, live: [...others, { id: start.id, type: start.type, attempt, text: "" }] });
        return;
      }
      case "event_delta": {
        const live = this.state.live.find((live) => live.id === event.event_id);
        const delta = event.delta as { content?: { text?: string } } | undefined;
        if (live) {
          // Changed in place and painted once per frame: a component tree is too slow for tokens.
          live.text += delta?.content?.text ?? "";
          this.askFrame();
        }
        return;
      }
      case "session.preview_reset":
        this.set({ ...this.state, live: [] });
        return;
      case "session.reset":
        this.pause();
        void this.open();
        return;
      case "session.deleted":
        this.set({ ...this.state, deleted: true, live: [] });
        return;
      default:
        this.pending.push(event);
        this.askFrame();
    }
  }

  private askFrame(): void {
    if (this.isFrameAsked) return;
    this.isFrameAsked = true;
    const paint = () => {
      this.isFrameAsked = false;
      this.flush();
      this.textListeners.forEach((listener) => listener());
    };
    // Hidden pages have no frames, and must not fall behind.
    if (document.visibilityState === "hidden") setTimeout(paint, 200);
    else requestAnimationFrame(paint);
  }

  private flush(): void {
    if (this.pending.length === 0) return;
    const came = this.pending;
    this.pending = [];
    let { events, queued, live, lastSeq, hasOlder } = this.state;
    const rows: WireEvent[] = [];
    for (const event of came) {
      if (event.seq == null) {
        if (!queued.some((known) => known.id === event.id)) queued = [...queued, event];
        continue;
      }
      queued = queued.filter((known) => known.id !== event.id);
      live = live.filter((known) => known.id !== event.id);
      if (event.type === "span.model_request_end") live = [];
      if (event.seq <= lastSeq) continue;
      lastSeq = event.seq;
      rows.push(event);
    }
    events = rows.length > 0 ? [...events, ...rows] : events;
    if (events.length > MOST) {
      // Cut at a row that begins something, and go on reading there when older ones are asked for.
      events = events.slice(-PAGE * 4);
      this.older = `page_${events[0]?.seq}`;
      hasOlder = true;
    }
    this.set({ ...this.state, events, queued, live, lastSeq, hasOlder });
    if (rows.length > 0) this.rowListeners.forEach((listener) => listener());
  }
}
