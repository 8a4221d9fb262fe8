import type { AnswerOf } from "../api/client";

export type ClusterSlots = AnswerOf<"/api/v1/cluster">;
export type TaskExecutorSlots = ClusterSlots["task_executors"][number];
export type SlotDemand = ClusterSlots["demands"][number];

const FREE = -1;
const HUES = 8;

/** Returns the number of free slots, whether jobs can get them or not. */
export function countFree(executor: TaskExecutorSlots): number {
  return executor.slots.filter((job) => job === FREE).length;
}

/** Returns the class of the slots of a job by its place in `jobs`. */
export function hueOf(place: number): string {
  if (place === FREE) return "free";
  return place < 0 ? "unknown" : `hue-${place % HUES}`;
}
