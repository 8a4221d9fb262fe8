// Which view each address shows.

import type { ComponentChildren } from "preact";
import { SubmitPage } from "./actions/submit-page";
import { ClusterPage } from "./cluster/cluster-page";
import { EventPage } from "./events/event-page";
import { EventsPage } from "./events/events-page";
import { DifferencePage } from "./history/difference-page";
import { StoryPage } from "./history/story-page";
import { JobPage } from "./jobs/job-page";
import { JobsPage } from "./jobs/jobs-page";
import { LogsPage } from "./logs/logs-page";
import { Empty } from "./parts/states";

export interface PageView {
  readonly title: string;
  /** The section that the page belongs to. */
  readonly section: string;
  /** The job that the page is about; its view is read again only for events of it. */
  readonly job?: string;
  readonly view: () => ComponentChildren;
}

/** The entries of the navigation: the first part of their addresses, and their names. */
export const SECTIONS = [
  { path: "cluster", title: "Cluster" },
  { path: "jobs", title: "Jobs" },
  { path: "events", title: "Events" },
  { path: "story", title: "Story" },
  { path: "difference", title: "Difference" },
  { path: "logs", title: "Logs" },
  { path: "submit", title: "Submit" },
] as const;

/** Returns the page of an address. */
export function pageOf(parts: readonly string[]): PageView {
  const [section = "cluster", id, ...rest] = parts;
  if (section === "cluster") return { title: "Cluster", section, view: () => <ClusterPage /> };
  if (section === "jobs" && id === undefined) return { title: "Jobs", section, view: () => <JobsPage /> };
  if (section === "jobs" && id !== undefined) {
    return { title: "Job", section, job: id, view: () => <JobPage key={id} id={id} parts={rest} /> };
  }
  if (section === "events" && id === undefined)
    return { title: "Events", section, view: () => <EventsPage /> };
  if (section === "events" && id !== undefined && /^\d+$/.test(id)) {
    return { title: `Event ${id}`, section, view: () => <EventPage key={id} offset={Number(id)} /> };
  }
  if (section === "story") return { title: "Story", section, view: () => <StoryPage /> };
  if (section === "difference") return { title: "Difference", section, view: () => <DifferencePage /> };
  if (section === "logs") {
    return {
      title: "Logs",
      section,
      view: () => <LogsPage {...(id === undefined ? {} : { process: id })} file={rest[0]} />,
    };
  }
  if (section === "submit") return { title: "Submit", section, view: () => <SubmitPage /> };
  return { title: "Not found", section: "", view: () => <Empty>There is no page {parts.join("/")}.</Empty> };
}
