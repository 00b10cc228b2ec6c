// Reads a resource of the Prometheus operator as JSON from standard input; exits 1 with the reason if the operator's
// schema refuses it.
import { readFileSync } from "node:fs";

const resource = JSON.parse(readFileSync(0, "utf8"));
const group = "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1";
const { [resource.kind]: Model } = await import(`${group}/${resource.kind}`);
try {
  new Model(resource).validate();
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
