// The frame of every page: navigation, the state of the connection, and the page that the address names.

import { useEffect, useRef } from "preact/hooks";
import { connection, follow, isLogKnown, lastOffset, stopFollowing } from "./api/event-stream";
import { type Server, ServerContext, useServerQuery } from "./api/server";
import { isTokenWanted, token } from "./api/token";
import { isVisible } from "./api/visibility";
import { at } from "./moment";
import { pageOf, sectionsOf } from "./pages";
import { LoginBox } from "./parts/login-box";
import { Failure, Loading, Warning } from "./parts/states";
import { linkTo, route } from "./routing";
import { switchTheme, theme } from "./theme";
import { TimeBar } from "./time/time-bar";

export function Page() {
  const { parts } = route.value;
  const query = useServerQuery();
  const server = query.body;
  const page = pageOf(parts, server);
  useStream(page.job ?? null);
  const main = useRef<HTMLElement>(null);
  const path = parts.join("/");
  const isFirst = useRef(true);

  useEffect(() => {
    document.title = `${page.title} · tailrace`;
    // A screen reader goes on at the new page, as after a link to a document.
    if (!isFirst.current) main.current?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [path]);

  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        Skip to content
      </button>
      <header class="top">
        <a class="brand" href={linkTo([])}>
          <Mark />
          tailrace
        </a>
        {server?.cluster != null && (
          <a class="cluster-name" href="../../" title="All clusters">
            {server.cluster}
          </a>
        )}
        <nav aria-label="Sections">
          {sectionsOf(server).map((section) => (
            <a
              key={section.path}
              href={linkTo([section.path])}
              aria-current={page.section === section.path ? "page" : undefined}
            >
              {section.title}
            </a>
          ))}
        </nav>
        <ConnectionState server={server} />
        <button
          type="button"
          class="quiet icon"
          onClick={switchTheme}
          aria-label={theme.value === "dark" ? "Use light colours" : "Use dark colours"}
        >
          {theme.value === "dark" ? "☀" : "☾"}
        </button>
      </header>
      {server !== null && !server.hasManyClusters && <TimeBar isHistory={server.isHistory} />}
      <main id="main" ref={main} tabIndex={-1}>
        {at.value === null && connection.value === "lost" && (
          <Warning>The connection to the server is lost. What is shown may be old. Trying again…</Warning>
        )}
        {isTokenWanted.value ? (
          <LoginBox />
        ) : server === null ? (
          query.error === null ? (
            <Loading />
          ) : (
            <Failure error={query.error} />
          )
        ) : (
          <ServerContext.Provider value={server}>{page.view()}</ServerContext.Provider>
        )}
      </main>
    </>
  );
}

/** Follows the log while the present is shown to somebody: all of it, or the events of the job of the page. */
function useStream(job: string | null): void {
  const isLive = at.value === null && isVisible.value && isLogKnown.value;
  useEffect(() => {
    if (!isLive) return;
    follow(lastOffset.peek(), job);
    return stopFollowing;
  }, [isLive, job, token.value]);
}

function ConnectionState({ server }: { server: Server | null }) {
  if (server?.hasManyClusters) return <span class="connection">History</span>;
  const state = at.value !== null ? "past" : connection.value;
  const live = server?.isHistory ? "History" : "Live";
  const text = { past: "Past", live, lost: "No connection", connecting: "Connecting" }[state];
  const offset = lastOffset.value;
  return (
    <span class={`connection ${state}`} title={offset < 0 ? "" : `The log has events up to offset ${offset}`}>
      <i aria-hidden="true" />
      {text}
    </span>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M5 11c4-4 7 4 11 0s7 4 11 0M5 17c4-4 7 4 11 0s7 4 11 0M5 23c4-4 7 4 11 0s7 4 11 0" />
    </svg>
  );
}
