// Package histories checks what several processes saw of one Redis, against the
// algorithm that package gcra documents.
//
// Four processes take, refund, peek and settle on few keys and record when each call
// began and ended and what it returned (traffic_test.go, recorder_test.go). Meanwhile the
// server is killed, paused or failed over, or replies are lost (faults_test.go,
// failover_test.go). Then three checkers read the history:
//
//   - Porcupine looks for an order of the calls that the sequential algorithm explains to
//     the tick (model_test.go, step_test.go, zone_test.go).
//   - No window of time may have more than B + D/T units (windows_test.go).
//   - Each settlement is compared with what was charged for it (settlement_test.go).
//
// TestPlantedFaults shows what each of them finds (plant_test.go, planted_test.go).
//
// The time of a call by the clock of Redis is not known, but it is between its beginning
// and its end: all processes and the server read the clock of one machine.
//
// TestHistory (script_test.go) has Redis itself record the calls of the script.
package histories
