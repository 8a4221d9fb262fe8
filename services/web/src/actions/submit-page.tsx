// Submits programs: those that the cluster has, and uploaded ones.

import { useServer } from "../api/server";
import { type Tab, Tabs } from "../parts/tabs";
import { FunctionForm } from "./function-form";
import { ProgramsView } from "./programs-view";

const PROGRAMS = "programs";
const TABS: readonly Tab[] = [
  { path: "", title: "By its function" },
  { path: PROGRAMS, title: "Upload" },
];

/** `parts`: "programs", and the id of an uploaded program. */
export function SubmitPage({ parts }: { parts: readonly string[] }) {
  const { runsPrograms } = useServer();
  const [view, program] = parts;
  const isUpload = runsPrograms && view === PROGRAMS;
  return (
    <>
      <h1>Submit a program</h1>
      {runsPrograms && <Tabs base={["submit"]} tabs={TABS} current={isUpload ? PROGRAMS : ""} />}
      {isUpload ? <ProgramsView chosen={program ?? null} /> : <FunctionForm />}
    </>
  );
}
