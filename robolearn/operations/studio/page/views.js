// Says which module shows what: one line per kind of thing (`#/<kind>/<id>/...`), and one line per
// view over several things (`#/<name>/<id>,<id>`).

export const VIEWS = {
  store: () => import("./episodes/store_view.js"),
};

export const EXTRA = {
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
