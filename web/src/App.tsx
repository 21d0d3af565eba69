// The frame of all pages: who is signed in, where to go, and how live it is.
import { Component, lazy, Suspense, useCallback, useEffect, useState, useSyncExternalStore, type ReactNode } from "react";
import { Button, Dialog, Heading, Modal, ModalOverlay } from "react-aria-components";
import { Failure, onSignedOut, pageKey, signIn, signOut, whoami, type Approval, type Caller, type Page } from "./api/client";
import { CallerContext } from "./caller";
import { feed } from "./feed/feed";
import { Loading, Problem, useNow } from "./parts/parts";
import { clock, span, zoneName } from "./parts/format";
import { useKeys } from "./parts/keys";
import { pause, usePaused } from "./parts/pause";
import { useResource } from "./parts/resource";
import { settings, useSetting } from "./parts/settings";
import { Approvals, Conditions, Health, Login, Workers } from "./pages/fleet";
import { Overview } from "./pages/Overview";
import { Sessions } from "./pages/Sessions";
import { Link, go, useAddress } from "./router";

const SessionPage = lazy(() => import("./pages/SessionPage").then((page) => ({ default: page.SessionPage })));

type Login = { state: "asking" } | { state: "in"; caller: Caller } | { state: "out"; why: string } | { state: "away"; error: unknown };

/** The code of a link, taken out of the address at once so that it is not copied along. */
function takeCode(): string | null {
  const code = /^#login=([0-9a-f]+)$/.exec(location.hash)?.[1] ?? null;
  if (code) history.replaceState(null, "", location.pathname + location.search);
  return code;
}
const CODE = takeCode();
// Taken once, also where an effect runs twice.
let signedIn: Promise<void> | null = null;

export function App() {
  const [login, setLogin] = useState<Login>({ state: "asking" });
  const ask = useCallback(async () => {
    try {
      let linkError: unknown = null;
      if (CODE) {
        signedIn ??= signIn({ code: CODE });
        await signedIn.catch((error: unknown) => (linkError = error));
      }
      if (!pageKey()) {
        const why = linkError instanceof Failure ? linkError.message : "";
        setLogin(linkError instanceof Failure && linkError.isAway ? { state: "away", error: linkError } : { state: "out", why });
        return;
      }
      const caller = await whoami();
      feed.hello();
      setLogin({ state: "in", caller });
    } catch (error) {
      if (error instanceof Failure && error.isLogin) setLogin({ state: "out", why: error.message });
      else setLogin({ state: "away", error });
    }
  }, []);
  useEffect(() => void ask(), [ask]);
  useEffect(() => onSignedOut(() => setLogin((now) => (now.state === "in" ? { state: "out", why: "The login of this browser has ended. What you were looking at is still there." } : now))), []);
  useEffect(() => {
    if (login.state !== "away") return;
    const timer = setTimeout(() => void ask(), 2000);
    return () => clearTimeout(timer);
  }, [login, ask]);
  switch (login.state) {
    case "asking":
      return <Loading />;
    case "away":
      return <main className="page login" id="main"><h1>tenure</h1><Problem error={login.error} what="The workbench cannot start" retry={() => void ask()} /></main>;
    case "out":
      return <Login why={login.why} done={() => void ask()} />;
    case "in":
      return (
        <CallerContext value={login.caller}>
          <Frame leave={() => void signOut().finally(() => setLogin({ state: "out", why: "You signed out." }))} />
        </CallerContext>
      );
  }
}

const PLACES = [["", "Overview", "o"], ["sessions", "Sessions", "r"], ["approvals", "Approvals", "a"], ["conditions", "Conditions", "c"], ["workers", "Workers", "w"], ["health", "Health", "h"]] as const;

function Frame({ leave }: { leave: () => void }) {
  const { path } = useAddress();
  const [help, setHelp] = useState(false);
  const approvals = useResource<Page<Approval>>("/v1/approvals?limit=100", { fleet: true, everyMs: 30_000 });
  const waiting = approvals.data?.data.length ?? 0;
  const theme = useSetting(settings.theme);
  const dark = theme === "dark" || (theme === "system" && document.documentElement.dataset.theme === "dark");
  const place = path[0] ?? "";
  useEffect(() => {
    const word = PLACES.find(([name]) => name === place)?.[1] ?? "tenure";
    if (path.length < 2) document.title = `${word} · tenure`;
  }, [place, path.length]);
  useKeys({
    "?": () => setHelp(true),
    "g o": () => go("/"),
    "g r": () => go("/sessions"),
    "g a": () => go("/approvals"),
    "g c": () => go("/conditions"),
    "g w": () => go("/workers"),
    "g h": () => go("/health"),
    t: () => settings.theme.set(dark ? "light" : "dark"),
    z: () => settings.zone.set(settings.zone.get() === "utc" ? "local" : "utc"),
  });
  return (
    <div className="app">
      <a className="skip" href="#main">To the content</a>
      <header className="top">
        <Link className="brand" to="/">tenure</Link>
        <nav aria-label="Main">
          {PLACES.map(([name, word]) => (
            <Link key={name} to={`/${name}`} aria-current={place === name ? "page" : undefined}>
              {word}{name === "approvals" && waiting > 0 && <span className="mono count">{waiting}{approvals.data?.next_page ? "+" : ""}</span>}
            </Link>
          ))}
        </nav>
        <span className="spring" />
        <Button className="button quiet" onPress={() => settings.theme.set(dark ? "light" : "dark")}>{dark ? "Light" : "Dark"}</Button>
        <Button className="button quiet" onPress={leave}>Sign out</Button>
      </header>
      <Guard key={path.join("/")}>
        <Suspense fallback={<Loading />}>
          <PageOf path={path} />
        </Suspense>
      </Guard>
      <Footer help={() => setHelp(true)} />
      <div id="announcer" className="off-screen" role="status" aria-live="polite" />
      {help && <Help close={() => setHelp(false)} />}
    </div>
  );
}

function PageOf({ path }: { path: string[] }) {
  const [place, id] = path;
  switch (place) {
    case undefined:
      return <Overview />;
    case "sessions":
      return id ? <SessionPage key={id} id={id} /> : <Sessions />;
    case "approvals":
      return <Approvals />;
    case "conditions":
      return <Conditions />;
    case "workers":
      return <Workers />;
    case "health":
      return <Health />;
    default:
      return <main className="page" id="main"><h1>There is no such page</h1><p><Link to="/">Overview</Link></p></main>;
  }
}

/** A page that breaks must not take the frame along. */
class Guard extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: null };
  static getDerivedStateFromError(error: unknown) {
    return { error };
  }
  override render() {
    if (!this.state.error) return this.props.children;
    return <main className="page" id="main"><h1>This page broke</h1><Problem error={this.state.error} what="It is a fault of the workbench; the session is not touched" retry={() => this.setState({ error: null })} /></main>;
  }
}

function Footer({ help }: { help: () => void }) {
  const status = useSyncExternalStore(feed.onStatus, feed.getStatus);
  const paused = usePaused();
  const zone = useSetting(settings.zone);
  const now = useNow();
  const away = now - status.since;
  const [mark, words] = paused
    ? ["paused", "Paused by you"]
    : status.state === "live"
      ? ["live", "Live"]
      : status.state === "connecting"
        ? ["connecting", "Connecting"]
        : status.state === "signed_out"
          ? ["reconnecting", "Signed out"]
          : ["reconnecting", `Reconnecting, try ${status.tries}; showing ${clock(new Date(status.since).toISOString(), zone)}${away > 5000 ? `, ${span(Math.floor(away / 1000) * 1000)} ago` : ""}`];
  return (
    <footer className="bottom">
      <span className={`link-state ${mark}`} role="status" data-testid="link-state">{words}</span>
      <Button className="button quiet small" onPress={() => pause.set(!paused)}>{paused ? "Go on" : "Pause"}</Button>
      <Button className="button quiet small" onPress={() => settings.zone.set(zone === "utc" ? "local" : "utc")}>Times: {zone === "utc" ? "UTC" : `local (${zoneName()})`}</Button>
      <span className="spring" />
      <Button className="button quiet small" onPress={help}><kbd>?</kbd> Shortcuts</Button>
    </footer>
  );
}

const KEYS: [string, string][] = [
  ["g o · g r · g a · g c · g w · g h", "overview, sessions, approvals, conditions, workers, health"],
  ["/", "search in the list"],
  ["j · k", "next, previous session of the list"],
  ["[ · ]", "previous, next entry of the conversation"],
  ["L", "back to the newest entry"],
  ["1 – 5", "conversation, commands, files, details, timeline"],
  ["P", "pause the session (Resume is beside it)"],
  ["F", "fork the session"],
  ["c · y", "copy the id, copy the address"],
  ["a then Enter", "approve once, with the focus on the card"],
  ["x", "deny with a reason, with the focus on the card"],
  ["t · z", "light or dark, time zone"],
];

function Help({ close }: { close: () => void }) {
  const keys = useSetting(settings.keys);
  return (
    <ModalOverlay className="overlay" isOpen isDismissable onOpenChange={(open) => !open && close()}>
      <Modal className="modal">
        <Dialog className="dialog">
          <Heading slot="title">Shortcuts</Heading>
          <dl className="facts">{KEYS.map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
          <div className="row">
            <label className="row tight"><input type="checkbox" checked={keys === "on"} onChange={(event) => settings.keys.set(event.target.checked ? "on" : "off")} /> Single keys act</label>
            <span className="spring" />
            <Button className="button" autoFocus onPress={close}>Close</Button>
          </div>
        </Dialog>
      </Modal>
    </ModalOverlay>
  );
}
