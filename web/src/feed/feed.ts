// What pages see of the connection: topics with readers, and a status in words.
import { pageKey } from "../api/client";
import { Connection, type Message, type Status } from "./connection";

export type FromPage =
  | { kind: "hello"; pageKey: string }
  | { kind: "add"; topic: string; after: number | null }
  | { kind: "remove"; topic: string }
  | { kind: "alive" }
  | { kind: "bye" };
export type ToPage = { kind: "message"; message: Message } | { kind: "status"; status: Status };

type Reader = (message: Message) => void;
type Way = { add(topic: string, after: number | null): void; remove(topic: string): void; hello(): void };

class Feed {
  private readers = new Map<string, Set<Reader>>();
  private statusListeners = new Set<() => void>();
  private status: Status = { state: "connecting", tries: 0, since: Date.now() };
  private way: Way | null = null;

  /** Reads a topic from a row on; returns how to stop. */
  read(topic: string, after: number | null, reader: Reader): () => void {
    const readers = this.readers.get(topic) ?? new Set();
    readers.add(reader);
    this.readers.set(topic, readers);
    this.connect().add(topic, after);
    return () => {
      readers.delete(reader);
      if (readers.size === 0) {
        this.readers.delete(topic);
        this.connect().remove(topic);
      }
    };
  }

  /** After a new login. */
  hello(): void {
    this.connect().hello();
  }

  onStatus = (listener: () => void): (() => void) => {
    this.statusListeners.add(listener);
    return () => this.statusListeners.delete(listener);
  };
  getStatus = (): Status => this.status;

  private deliver = (message: Message): void => this.readers.get(message.topic)?.forEach((reader) => reader(message));
  private tell = (status: Status): void => {
    this.status = status;
    this.statusListeners.forEach((listener) => listener());
  };

  private connect(): Way {
    this.way ??= typeof SharedWorker === "undefined" ? this.alone() : this.shared();
    return this.way;
  }

  private shared(): Way {
    const worker = new SharedWorker(new URL("./shared.worker.ts", import.meta.url), { type: "module", name: "tenure" });
    const send = (message: FromPage) => worker.port.postMessage(message);
    worker.port.onmessage = ({ data }: MessageEvent<ToPage>) => (data.kind === "status" ? this.tell(data.status) : this.deliver(data.message));
    send({ kind: "hello", pageKey: pageKey() });
    setInterval(() => send({ kind: "alive" }), 20_000);
    addEventListener("pagehide", () => send({ kind: "bye" }));
    // Back from the cache of the browser: the worker has forgotten this tab.
    addEventListener("pageshow", (event) => event.persisted && location.reload());
    return {
      add: (topic, after) => send({ kind: "add", topic, after }),
      remove: (topic) => send({ kind: "remove", topic }),
      hello: () => send({ kind: "hello", pageKey: pageKey() }),
    };
  }

  /** Without a shared worker each tab that can be seen has a connection, so that there are never many. */
  private alone(): Way {
    const wanted = new Map<string, number | null>();
    const connection = new Connection((message) => {
      const seq = message.id ? Number(message.id.split(".")[0]) : NaN;
      if (wanted.has(message.topic) && Number.isFinite(seq)) wanted.set(message.topic, seq);
      this.deliver(message);
    }, this.tell);
    connection.setPageKey(pageKey());
    const isSeen = () => document.visibilityState === "visible";
    document.addEventListener("visibilitychange", () => {
      wanted.forEach((after, topic) => (isSeen() ? connection.add(topic, after) : connection.remove(topic)));
    });
    return {
      add: (topic, after) => {
        wanted.set(topic, after);
        if (isSeen()) connection.add(topic, after);
      },
      remove: (topic) => {
        wanted.delete(topic);
        connection.remove(topic);
      },
      hello: () => connection.setPageKey(pageKey()),
    };
  }
}

export const feed = new Feed();
