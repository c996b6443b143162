// Package diff compares two policy sets: by their content, field by field, and by
// what they would have decided on a recorded history.
//
// Content is compared in the canonical encoding, so comments, the order of files and
// notation make no difference. Decisions come from audit.Replay, once for each set;
// this package decides nothing itself.
package diff
