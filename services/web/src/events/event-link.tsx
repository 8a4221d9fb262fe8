import { linkTo } from "../routing";

/** A link to the event at an offset. It keeps the moment that is shown. */
export function EventLink({ offset }: { offset: number }) {
  return (
    <a class="number" href={linkTo(["events", String(offset)])}>
      {offset}
    </a>
  );
}
