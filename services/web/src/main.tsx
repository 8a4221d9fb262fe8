import { render } from "preact";
import { Page } from "./page";
import "./styles/colours.css";
import "./styles/base.css";
import "./styles/layout.css";
import "./styles/parts.css";
import "./styles/states.css";
import "./styles/cluster.css";
import "./styles/job.css";
import "./styles/vertex.css";
import "./styles/time.css";
import "./styles/events.css";
import "./styles/logs.css";
import "./styles/actions.css";
import "./styles/what-if.css";

const root = document.getElementById("page");
if (root !== null) {
  root.replaceChildren();
  render(<Page />, root);
}
