// Says which module shows what: one line per kind of thing (`#/<kind>/<id>/...`), and one line per
// view over several things (`#/<name>/<id>,<id>`).

export const VIEWS = {
  store: () => import("./episodes/store_view.js"),
  run: () => import("./lab/run_view.js"),
  evaluation: () => import("./lab/evaluation_view.js"),
  trial_session: () => import("./lab/session_view.js"),
  deployment: () => import("./lab/deployment_view.js"),
  certificate: () => import("./lab/certificate_view.js"),
  scene: () => import("./lab/scene_view.js"),
  capture: () => import("./lab/capture_view.js"),
};

export const EXTRA = {
  compare: {load: () => import("./lab/compare_view.js")},
  trust: {load: () => import("./lab/trust_view.js")},
};

export const WORDS = {
  store: ["episode store", "Episode stores"],
  run: ["run", "Runs"],
  evaluation: ["evaluation", "Evaluations"],
  trial_session: ["trial session", "Trial sessions"],
  deployment: ["deployment", "Deployments"],
  scene: ["scene", "Scenes"],
  capture: ["capture", "Captures"],
  certificate: ["certificate", "Certificates"],
};
