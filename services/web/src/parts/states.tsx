// What stands where data will be: nothing yet, nothing at all, or an error.

import type { ComponentChildren } from "preact";
import { isTemporary, RequestError } from "../api/client";
import type { Query } from "../api/use-query";

/** Shows what has no entries. */
export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Loading() {
  return (
    <p class="empty loading" role="status">
      Loading…
    </p>
  );
}

export function Failure({ error }: { error: Error }) {
  const status = error instanceof RequestError ? error.status : -1;
  const title = status === 404 ? "Not found" : isTemporary(error) ? "Not available now" : "Error";
  return (
    <div class="empty failure" role="alert">
      <b>{title}</b>
      <p>{error.message}</p>
      {isTemporary(error) && <p class="muted">The page tries again.</p>}
    </div>
  );
}

/** Says that what is shown may be wrong, and why. */
export function Warning({ children }: { children: ComponentChildren }) {
  return (
    <p class="note warn" role="status">
      {children}
    </p>
  );
}

/** Shows the body of a query once it is there; an error beside the last body says that it may be old. */
export function Loaded<Body>({
  query,
  children,
}: {
  query: Query<Body>;
  children: (body: Body) => ComponentChildren;
}) {
  if (query.body === null) return query.error === null ? <Loading /> : <Failure error={query.error} />;
  return (
    <>
      {query.error !== null && <Warning>{query.error.message} What is shown may be old.</Warning>}
      {children(query.body)}
    </>
  );
}
