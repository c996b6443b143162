// Package archive keeps ranges of a deployment's logs in plain files, so that retention
// may delete them from the logs, and proves later that they are whole.
//
//	Create  copies what came since the last range, and proves the copy by reading it
//	Verify  checks digests, chain and decisions, from the archive alone
//	Join    reads archived ranges and a live log behind them as one log
//
// An archive begins at the beginning of the decision log and grows by one range at a time
// (ADR 17): each range of a partition begins at the envelope with which the range before it
// ended, and the first envelope of the range names that one's hash.
//
// Invariants: a directory with the name of a range is complete and never changes. Create
// overwrites nothing, and only reads the logs.
//
// # Files
//
//	000001/                        a range: 1, 2, 3, …
//	000001/manifest.json           what it holds (Manifest), with the SHA-256 of each file
//	000001/manifest.json.sha256    the SHA-256 of manifest.json, in the form of sha256sum
//	000001/events/                 exact copies of the topics (package topiccopy), each a
//	000001/decisions/              log of package filelog
//	000001/policies/
//	unfinished-000002/             a range being copied; the next Create continues it
//
// Each manifest names the SHA-256 of the manifest before it. So the SHA-256 of the last
// one, which Create returns, stands for the whole archive.
package archive
