// Which view each address shows.

import type { ComponentChildren } from "preact";
import { SubmitPage } from "./actions/submit-page";
import type { Server } from "./api/server";
import { ClusterPage } from "./cluster/cluster-page";
import { ClustersPage } from "./clusters/clusters-page";
import { EventPage } from "./events/event-page";
import { EventsPage } from "./events/events-page";
import { DifferencePage } from "./history/difference-page";
import { StoryPage } from "./history/story-page";
import { JobPage } from "./jobs/job-page";
import { JobsPage } from "./jobs/jobs-page";
import { LogsPage } from "./logs/logs-page";
import { Empty } from "./parts/states";
import { WhatIfPage } from "./what-if/what-if-page";

export interface PageView {
  readonly title: string;
  /** The section that the page belongs to. */
  readonly section: string;
  /** The job that the page is about; its view is read again only for events of it. */
  readonly job?: string;
  readonly view: () => ComponentChildren;
}

interface Section {
  /** The first part of the addresses. */
  readonly path: string;
  readonly title: string;
  /** Whether it is about a cluster that runs. */
  readonly isLive?: boolean;
}

const SECTIONS: readonly Section[] = [
  { path: "cluster", title: "Cluster" },
  { path: "jobs", title: "Jobs" },
  { path: "events", title: "Events" },
  { path: "story", title: "Story" },
  { path: "difference", title: "Difference" },
  { path: "what-if", title: "What if" },
  { path: "logs", title: "Logs", isLive: true },
  { path: "submit", title: "Submit", isLive: true },
];

/** Returns the entries of the navigation; none before the server is known, and for several clusters. */
export function sectionsOf(server: Server | null): readonly Section[] {
  if (server === null || server.hasManyClusters) return [];
  return SECTIONS.filter((section) => !(section.isLive && server.isHistory));
}

/** Returns the page of an address. */
export function pageOf(parts: readonly string[], server: Server | null): PageView {
  if (server?.hasManyClusters) return { title: "Clusters", section: "", view: () => <ClustersPage /> };
  const [section = "cluster", id, ...rest] = parts;
  if (server?.isHistory && SECTIONS.some((each) => each.path === section && each.isLive)) {
    return {
      title: "Not found",
      section,
      view: () => (
        <NotFoundPage>A history server only reads logs of clusters: it has no page {section}.</NotFoundPage>
      ),
    };
  }
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
  if (section === "what-if") return { title: "What if", section, view: () => <WhatIfPage /> };
  if (section === "logs") {
    return {
      title: "Logs",
      section,
      view: () => <LogsPage {...(id === undefined ? {} : { process: id })} file={rest[0]} />,
    };
  }
  if (section === "submit") {
    return { title: "Submit", section, view: () => <SubmitPage parts={parts.slice(1)} /> };
  }
  return {
    title: "Not found",
    section: "",
    view: () => <NotFoundPage>There is no page {parts.join("/")}.</NotFoundPage>,
  };
}

function NotFoundPage({ children }: { children: ComponentChildren }) {
  return (
    <>
      <h1>Not found</h1>
      <Empty>{children}</Empty>
    </>
  );
}
