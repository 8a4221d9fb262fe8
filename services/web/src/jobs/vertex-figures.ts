// What the vertices of a running job do now: rates, load and watermarks. These figures come from TaskExecutors and are not
// in the log, so they are read again every few seconds, and there are none of the past.

import { useEffect, useState } from "preact/hooks";
import { get } from "../api/client";
import { repeat } from "../api/repeat";
import { at } from "../moment";

export interface VertexFigures {
  readonly recordsInPerSecond?: number;
  readonly recordsOutPerSecond?: number;
  readonly bytesInPerSecond?: number;
  readonly bytesOutPerSecond?: number;
  /** 0 to 1, of the busiest subtask. */
  readonly busy?: number;
  readonly backPressured?: number;
  /** The smallest of all subtasks, in milliseconds since the epoch. */
  readonly watermark?: number;
}

/** What the server aggregates over the subtasks of a vertex. */
interface Aggregated {
  readonly id: string;
  readonly min?: number;
  readonly max?: number;
  readonly sum?: number;
}

const PATH = "/v1/jobs/{jobid}/vertices/{vertexid}/subtasks/metrics";
const NAMES = [
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "numBytesInPerSecond",
  "numBytesOutPerSecond",
  "busyTimeMsPerSecond",
  "backPressuredTimeMsPerSecond",
  "currentInputWatermark",
].join(",");
const REFRESH_MS = 3_000;
/** Flink's watermark of a subtask that has none. */
const NO_WATERMARK = -(2 ** 62);

/** Returns vertex id -> figures; empty for a job that does not run, and for the past. */
export function useVertexFigures(
  job: string,
  vertices: readonly string[],
  isRunning: boolean,
): ReadonlyMap<string, VertexFigures> {
  const [figures, setFigures] = useState<ReadonlyMap<string, VertexFigures>>(new Map());
  const isLive = isRunning && at.value === null;
  const known = vertices.join(" ");

  useEffect(() => {
    setFigures(new Map());
    if (!isLive) return;
    const abort = new AbortController();
    const read = async (): Promise<boolean> => {
      const found = await Promise.all(vertices.map((vertex) => readFigures(job, vertex, abort.signal)));
      if (!abort.signal.aborted) {
        setFigures(new Map(vertices.map((vertex, place) => [vertex, found[place] ?? {}])));
      }
      return true;
    };
    const stop = repeat(read, { everyMs: REFRESH_MS });
    return () => {
      stop();
      abort.abort();
    };
  }, [job, known, isLive]);

  return figures;
}

/** Returns the figures of a vertex; none while the server has none. */
async function readFigures(job: string, vertex: string, signal: AbortSignal): Promise<VertexFigures> {
  try {
    const { body } = await get(PATH, { jobid: job, vertexid: vertex }, { get: NAMES }, signal);
    return toFigures(body as readonly Aggregated[]);
  } catch {
    return {};
  }
}

export function toFigures(found: readonly Aggregated[]): VertexFigures {
  const named = new Map(found.map((each) => [each.id, each]));
  const figure = (name: string, id: string, kind: "min" | "max" | "sum", scale = 1) => {
    const value = named.get(id)?.[kind];
    return value === undefined ? {} : { [name]: value * scale };
  };
  const watermark = named.get("currentInputWatermark")?.min;
  return {
    ...figure("recordsInPerSecond", "numRecordsInPerSecond", "sum"),
    ...figure("recordsOutPerSecond", "numRecordsOutPerSecond", "sum"),
    ...figure("bytesInPerSecond", "numBytesInPerSecond", "sum"),
    ...figure("bytesOutPerSecond", "numBytesOutPerSecond", "sum"),
    ...figure("busy", "busyTimeMsPerSecond", "max", 0.001),
    ...figure("backPressured", "backPressuredTimeMsPerSecond", "max", 0.001),
    ...(watermark === undefined || watermark < NO_WATERMARK ? {} : { watermark }),
  };
}
