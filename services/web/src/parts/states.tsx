// What stands where data will be: nothing yet, nothing at all, or an error.

import type { ComponentChildren } from "preact";
import { RequestError } from "../api/client";
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
  const title = status === 404 ? "Not found" : status === 0 || status === 503 ? "Not available now" : "Error";
  return (
    <div class="empty failure" role="alert">
      <b>{title}</b>
      <p>{error.message}</p>
      {(status === 503 || status === 0) && <p class="muted">The page tries again.</p>}
    </div>
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
      {query.error !== null && (
        <p class="banner warning" role="status">
          {query.error.message} What is shown may be old.
        </p>
      )}
      {children(query.body)}
    </>
  );
}
