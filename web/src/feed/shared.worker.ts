// The one connection of a browser: all tabs of the workbench share it.
import { Connection, type Message, type Status } from "./connection";
import type { FromPage, ToPage } from "./feed";

/** A tab that was silent for so long is gone; timers of hidden tabs run once a minute. */
const TAB_GONE_MS = 180_000;

type Tab = { topics: Set<string>; seen: number };
const tabs = new Map<MessagePort, Tab>();

const send = (port: MessagePort, message: ToPage) => port.postMessage(message);
const connection = new Connection(
  (message: Message) => tabs.forEach((tab, port) => tab.topics.has(message.topic) && send(port, { kind: "message", message })),
  (status: Status) => tabs.forEach((_, port) => send(port, { kind: "status", status })),
);

function leave(port: MessagePort, topic: string): void {
  tabs.get(port)?.topics.delete(topic);
  if (![...tabs.values()].some((tab) => tab.topics.has(topic))) connection.remove(topic);
}

function close(port: MessagePort): void {
  const topics = [...(tabs.get(port)?.topics ?? [])];
  topics.forEach((topic) => leave(port, topic));
  tabs.delete(port);
}

setInterval(() => {
  const before = Date.now() - TAB_GONE_MS;
  tabs.forEach((tab, port) => tab.seen < before && close(port));
}, 30_000);

(globalThis as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]!;
  tabs.set(port, { topics: new Set(), seen: Date.now() });
  port.onmessage = ({ data }: MessageEvent<FromPage>) => {
    const tab = tabs.get(port) ?? { topics: new Set<string>(), seen: 0 };
    tabs.set(port, tab);
    tab.seen = Date.now();
    switch (data.kind) {
      case "hello":
        connection.setPageKey(data.pageKey);
        send(port, { kind: "status", status: connection.now });
        break;
      case "add":
        tab.topics.add(data.topic);
        connection.add(data.topic, data.after);
        break;
      case "remove":
        leave(port, data.topic);
        break;
      case "alive":
        break;
      case "bye":
        close(port);
        break;
    }
  };
};
