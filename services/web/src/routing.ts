// Which page is shown: the part of the address behind `#`. Paths before it belong to the REST API.
//
//   #/jobs/ID/checkpoints?at=4711

import { signal } from "@preact/signals";

export interface Route {
  /** The parts of the path, decoded: ["jobs", "ID", "checkpoints"]. */
  readonly parts: readonly string[];
  readonly query: Readonly<Record<string, string>>;
}

export const route = signal<Route>(parseRoute(location.hash));

window.addEventListener("hashchange", () => {
  route.value = parseRoute(location.hash);
});

export function parseRoute(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    parts: path.split("/").filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(search)),
  };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Returns the link to a page, as of the moment that is shown now. `query` adds to the address, or replaces `at`. */
export function linkTo(
  parts: readonly string[],
  query: Readonly<Record<string, string | null>> = {},
): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ at: route.value.query.at ?? null, ...query })) {
    if (value !== null) search.set(name, value);
  }
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text && "?"}${text}`;
}

/** Changes the query of the present page; null removes a name. `replace` leaves no step in the browser's history. */
export function changeQuery(query: Readonly<Record<string, string | null>>, replace = false): void {
  const kept = Object.fromEntries(Object.entries(route.value.query).filter(([name]) => !(name in query)));
  const target = linkTo(route.value.parts, { ...kept, ...query });
  if (replace) {
    history.replaceState(null, "", target);
    route.value = parseRoute(target);
  } else {
    location.hash = target;
  }
}
