// The fields of an event as nested lists. What names another event or a job is a link.

import type { ComponentChildren } from "preact";
import { formatExactTime } from "../formats";
import { linkTo } from "../routing";
import { EventLink } from "./event-link";

/** Fields of a header that are offsets of events. */
const OFFSETS = new Set(["cause", "decided_at"]);
const LONGEST_TEXT = 2_000;

export function EventFields({ of }: { of: Readonly<Record<string, unknown>> }) {
  const names = Object.keys(of);
  if (names.length === 0) return <p class="muted">It has no fields.</p>;
  return (
    <dl class="fields-of-event">
      {names.map((name) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{showValue(name, of[name])}</dd>
        </div>
      ))}
    </dl>
  );
}

function showValue(name: string, value: unknown): ComponentChildren {
  if (value === null || value === undefined || value === "") return <span class="muted">none</span>;
  if (typeof value === "number" && OFFSETS.has(name)) {
    return value < 0 ? <span class="muted">none</span> : <EventLink offset={value} />;
  }
  if (typeof value === "number" && name === "time") return formatExactTime(value / 1000);
  if (typeof value === "string" && name === "job_id") {
    return <a href={linkTo(["jobs", value])}>{value}</a>;
  }
  if (typeof value === "string" && value.length <= LONGEST_TEXT) return value;
  if (typeof value === "string") return `${value.slice(0, LONGEST_TEXT)}… (${value.length} characters)`;
  if (typeof value !== "object") return String(value);
  if (Object.keys(value).length === 0) return <span class="muted">none</span>;
  return <pre>{JSON.stringify(value, null, 2)}</pre>;
}
