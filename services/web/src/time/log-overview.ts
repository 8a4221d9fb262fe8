// What the time bar knows of the log: its extent, how many events it has over time, and the notable ones.

import type { AnswerOf } from "../api/client";
import { useQuery } from "../api/use-query";

export type LogOverview = AnswerOf<"/api/v1/log">;
export type LogPoint = NonNullable<LogOverview["last"]>;
export type LogMark = LogOverview["marks"][number];

const BUCKETS = 160;
const MARKS = 200;
const REFRESH_MS = 5_000;

/** Returns the overview of the whole log, also while a past moment is shown; null before it is there. */
export function useLogOverview(): LogOverview | null {
  return useQuery(
    "/api/v1/log",
    {},
    {
      query: { buckets: BUCKETS, marks: MARKS },
      refresh: REFRESH_MS,
      hasMoment: false,
    },
  ).body;
}

/** Returns the event that a moment is at, an offset or a time as in `?at=`; null before it is known. */
export function useLogPoint(moment: string | null): LogPoint | null {
  return (
    useQuery(
      "/api/v1/log",
      {},
      {
        query: { to: moment ?? undefined, marks: 0 },
        refresh: "never",
        hasMoment: false,
        enabled: moment !== null,
      },
    ).body?.last ?? null
  );
}

/** Returns the place of a time on the bar, from 0 to 1. Times are in microseconds since the epoch. */
export function placeOf(log: LogOverview, time: number): number {
  if (log.first === null || log.last === null || log.last.time === log.first.time) return 0;
  return Math.min(1, Math.max(0, (time - log.first.time) / (log.last.time - log.first.time)));
}

/** Returns the bucket of a place on the bar. */
function bucketAt(log: LogOverview, place: number): number {
  return Math.min(log.buckets.length - 1, Math.max(0, Math.floor(place * log.buckets.length)));
}

/** Returns the last event up to a place on the bar; within a bucket, events are taken as spread evenly. */
export function offsetAt(log: LogOverview, place: number): number {
  if (log.first === null || log.last === null) return 0;
  if (place >= 1 || log.buckets.length === 0) return log.last.offset;
  const number = bucketAt(log, place);
  const bucket = log.buckets[number];
  if (bucket === undefined) return log.last.offset;
  const next = log.buckets[number + 1]?.first ?? log.last.offset + 1;
  const within = place * log.buckets.length - number;
  const offset =
    bucket.events === 0 ? bucket.first - 1 : bucket.first + Math.floor(within * (next - bucket.first));
  return Math.min(log.last.offset, Math.max(log.first.offset, offset));
}

/** Returns the place of an offset on the bar, the inverse of `offsetAt` up to the length of a bucket. */
export function placeOfOffset(log: LogOverview, offset: number): number {
  if (log.last === null || offset >= log.last.offset || log.buckets.length === 0) return 1;
  let number = log.buckets.length - 1;
  while (number > 0 && (log.buckets[number]?.first ?? 0) > offset) number -= 1;
  const first = log.buckets[number]?.first ?? 0;
  const next = log.buckets[number + 1]?.first ?? log.last.offset + 1;
  const within = next > first ? (offset - first) / (next - first) : 0;
  return Math.min(1, Math.max(0, (number + within) / log.buckets.length));
}
