// Package e2e runs our programs as they are installed, as child processes on a
// real Pulsar broker, and looks at what they leave in the logs and in the job
// database.
//
//	Build, Deployment, Process  the programs and what they need
//	Proxy                       the network between one program and the broker
//	Rogue                       a stranger who takes the right to publish
//	History                     events without end: recordings, copied with ids of their own
//	Chain, Failures             a plain reading of both logs
//	Deployment.Check            everything that must hold when all is quiet
//
// Its tests are the scenarios that one can write down; internal/test/chaos draws
// faults at random with the same parts.
//
// Chain and Failures share no code with what they judge: protobuf-go, and
// PROTOCOL 1 to 3 in one plain function.
package e2e
