import type { AnswerOf } from "../api/client";
import { formatExactTime, formatTime, NONE } from "../formats";
import { TableCard, TableHead } from "../parts/table";
import { linkTo } from "../routing";
import { EventLink } from "./event-link";

type LogEvent = AnswerOf<"/api/v1/events">["events"][number];

/** Events, one in each row. */
export function EventTable({ label, events }: { label: string; events: readonly LogEvent[] }) {
  return (
    <TableCard label={label}>
      <TableHead
        columns={[{ number: "Offset" }, "Time", "Event", "From", "To", "About", { number: "Cause" }]}
      />
      <tbody>
        {events.map((event) => (
          <EventRow key={event.offset} event={event} />
        ))}
      </tbody>
    </TableCard>
  );
}

function EventRow({ event }: { event: LogEvent }) {
  const { sender, recipient, cause } = event.header;
  const time = timeOf(event);
  return (
    <tr>
      <td class="right">
        <EventLink offset={event.offset} />
      </td>
      <td class="number nowrap" title={formatExactTime(time)}>
        {formatTime(time)}
      </td>
      <td>
        <a href={linkTo(["events", String(event.offset)])}>
          {event.type.slice(event.type.lastIndexOf(".") + 1)}
        </a>
      </td>
      <td>{shortAddress(sender)}</td>
      <td>{shortAddress(recipient)}</td>
      <td class="about">{describe(event)}</td>
      <td class="right">
        {typeof cause === "number" && cause >= 0 ? (
          <EventLink offset={cause} />
        ) : (
          <span class="muted">{NONE}</span>
        )}
      </td>
    </tr>
  );
}

/** Returns the time of an event in milliseconds since the epoch; 0 if it has none. */
function timeOf(event: LogEvent): number {
  const { time } = event.header;
  return typeof time === "number" ? time / 1000 : 0;
}

function shortAddress(address: unknown): string {
  if (typeof address !== "string" || address === "") return NONE;
  const [role = "", name = ""] = address.split("/", 2);
  return name.length > 24 ? `${role}/${name.slice(0, 10)}…${name.slice(-6)}` : address;
}

/** The few fields that say most: what it is about, its new status, and why. */
function describe(event: LogEvent): string {
  const names = ["job_id", "resource_id", "status", "state", "reason", "release", "target", "epoch"];
  const found = names.map((name) => event.fields[name]).filter((value) => typeof value === "string" && value);
  const text = found.join(" · ");
  return text.length > 160 ? `${text.slice(0, 160)}…` : text;
}
