// The last rates of each subtask: the server knows the present only, so the page keeps what it has read.

import type { VertexSubtasks } from "../api/openapi";

const MOST_SAMPLES = 40;

export interface Samples {
  /** The time of the last answer that is in `rates`. */
  readonly until: number;
  /** By subtask, oldest first. */
  readonly rates: ReadonlyMap<number, readonly number[]>;
  /** The largest rate of all, so that all have one scale; at least 1. */
  readonly largest: number;
}

export const NO_SAMPLES: Samples = { until: -1, rates: new Map(), largest: 1 };

/** Returns the samples with those of another answer. An answer that is there already changes nothing. */
export function addSamples(samples: Samples, { now, subtasks }: VertexSubtasks): Samples {
  if (now <= samples.until) return samples;
  const rates = new Map<number, readonly number[]>();
  let largest = 1;
  for (const { subtask, load } of subtasks) {
    const known = samples.rates.get(subtask) ?? [];
    const next = load === null ? known : [...known, load.records_in_per_second + load.records_out_per_second];
    const kept = next.slice(-MOST_SAMPLES);
    rates.set(subtask, kept);
    for (const rate of kept) largest = Math.max(largest, rate);
  }
  return { until: now, rates, largest };
}
