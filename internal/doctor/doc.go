// Package doctor checks the Pulsar cluster of a deployment: whether topics, their
// policies and the brokers' settings could lose or delay messages. It shows which
// process owns which partition, and creates the topics.
//
//	Gather  reads Facts from the admin API and the decision log
//	Check   checks Facts (pure)
//	ClientsOf lists which process owns what (pure)
//	Plan    lists what to create or set, and Step.Do does it
//
// Invariant: a fact that could not be read is reported as unknown, and never passes
// a check. Only Step.Do changes anything.
//
// # Codes
//
//	RD001  connection to the service URL                 RD020  retention of decisions and policies
//	RD002  version of the broker                         RD021  retention of events
//	RD003  configuration of the brokers                  RD022  message TTL
//	RD010  events                                        RD023  backlog quota
//	RD011  decisions, with as many partitions            RD024  deletion of inactive topics
//	RD012  policies, with one partition                  RD025  compaction
//	RD013  partition count in the decision log           RD026  deduplication
//	                                                     RD027  offload to a second storage
//	RD030  delay of reads at the end of a topic          RD040  subscription of the evaluators
//	RD031  bookies sync their journal                    RD041  subscription of the ingesters on decisions
//	RD032  keep-alive                                    RD042  an active evaluator for each partition
//	RD033  fail-over delay                               RD043  the right to publish decisions
//	RD034  rate of storing acknowledgements              RD044  an active ingester for each partition
//	RD035  maximum message size                          RD045  subscription of the ingesters on events
//	RD036  message indexes                               RD046  events retained without an ingester
//	                                                     RD047  events reach back to the decision log
//
// GatherDatabase and CheckDatabase do the same for a job database in PostgreSQL:
//
//	RD050  reachable, and ours                           RD054  pending retries, none overdue
//	RD051  Armada's tables, in a supported version       RD055  pods of failed runs are deleted in time
//	RD052  positions exist in events                     RD056  failures have categories
//	RD053  no lock is held for long                      RD057  not rolled back to Armada's ingester
package doctor
