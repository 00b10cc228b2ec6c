// Reads one ServiceMonitor as JSON from standard input; exits 1 with the reason if the operator's schema refuses it.
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
import { readFileSync } from "node:fs";

try {
  new ServiceMonitor(JSON.parse(readFileSync(0, "utf8"))).validate();
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
