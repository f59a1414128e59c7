// The concept of a space that stores the records and the buckets of a hash table. The table does
// not depend on a particular space: TinyDBM uses memory (hash/memory/record_arena.h), HashDBM a
// file (hash/file/record_heap.h).
//
// A record is named by a 32-bit handle, never 0. Calls marked (optimistic) run without a lock
// beside writers: they may read garbage, but must not access memory outside the space because of
// it. Their result counts only if the bucket's version has not changed. All other calls on a record
// require that the caller has locked the record's bucket, unless they say otherwise.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "hako/base/function_ref.h"
#include "hako/base/status.h"
#include "hako/format/record_format.h"
#include "hako/hash/copy_buffer.h"
#include "hako/hash/record_limit.h"
#include "hako/hash/record_view.h"
#include "hako/sync/write_gate.h"
#include "hako/sync/writer_states.h"

namespace hako::hash {

template <class S>
concept RecordSpace = requires(S& s, typename S::WriterState& writer, std::uint32_t handle, std::uint64_t n, std::uint64_t head,
                               std::string_view bytes, FetchedCopy& copy, format::Lengths& lengths, Status* error, IndexExtent kind,
                               CopyBuffer& buffer, RecordCopy* copied, char* (*sink)(std::size_t), bool (*is_current)()) {
  requires std::derived_from<typename S::WriterState, sync::WriterState>;
  { S::kOverwrites } -> std::convertible_to<bool>;  // whether a value can be changed in place
  // Whether an Ahead reads several records at once (hash/file/read_ahead.h); if not, it is empty.
  { S::kReadsAhead } -> std::convertible_to<bool>;
  typename S::Ahead;
  { s.gate() } -> std::same_as<sync::WriteGate&>;

  // Index buckets: zero-filled extents of one address range that never moves.
  { s.AllocateIndexExtent(n, kind) } -> std::same_as<StatusOr<std::uint64_t>>;
  { s.index_base() } -> std::same_as<std::byte*>;
  { s.index_end() } -> std::same_as<std::uint64_t>;  // no bucket lies at or above it
  { s.StoreLineCount(n) } -> std::same_as<void>;     // for the next process after a kill of this one

  // Records.
  { s.Prefetch(handle) } -> std::same_as<void>;                                  // (optimistic)
  { s.PrefetchRest(handle) } -> std::same_as<void>;                              // (optimistic) once the first line is cached
  { s.TryFetchShort(handle, n, bytes, sink) } -> std::same_as<bool>;             // (optimistic) n = hash; false = call TryFetch
  { s.TryFetch(handle, bytes, sink, is_current, copy) } -> std::same_as<Match>;  // (optimistic)
  { s.CopyRecord(handle, is_current, buffer, copied) } -> std::same_as<Match>;   // (optimistic) into the buffer; kYes: intact
  { s.CopyIsIntact(copy, n) } -> std::same_as<bool>;                             // n = hash of the key
  { s.DamageAt(handle) } -> std::same_as<Status>;
  { s.MatchKey(handle, bytes, &lengths) } -> std::same_as<Match>;    // and sets the record's lengths
  { s.View(writer, handle) } -> std::same_as<StatusOr<RecordView>>;  // checked; DataLoss if damaged
  // A new record that no entry names yet; 0 = error.
  { s.Write(writer, n, bytes, bytes, error) } -> std::same_as<std::uint32_t>;
  // Write for a long value, outside the gate and without locks.
  { s.WriteAhead(writer, n, bytes, bytes, error) } -> std::same_as<std::uint32_t>;
  // Ends WriteAhead, inside the gate, before the record is published or given back.
  { s.EndAhead(writer, handle) } -> std::same_as<Status>;
  { s.Overwrite(handle, lengths, bytes, bytes) } -> std::same_as<bool>;  // in place, if the space supports it
  { s.Commit(handle) } -> std::same_as<void>;                            // the record's entry names it now
  { s.Revive(handle) } -> std::same_as<void>;                            // as Commit, after a process kill
  { s.Retire(writer, handle, lengths) } -> std::same_as<void>;           // the record's entry will stop naming it
  // Retired blocks may be reused, because no entry names them now.
  { s.ReleaseFreed(writer) } -> std::same_as<void>;
  // The entry that names the first handle will name the second; called before anything changes. 0 =
  // none.
  { s.NoteMove(handle, handle) } -> std::same_as<void>;
  { s.KeyHash(bytes) } -> std::same_as<std::uint64_t>;

  // Fast paths for short records (format/record_format.h). If such a call returns false, 0 or
  // nullopt, it has done nothing. `head` is the record's first 8 bytes.
  { s.MatchShort(handle, bytes, &head) } -> std::same_as<bool>;
  { s.ViewShort(handle, head, n) } -> std::same_as<std::optional<std::string_view>>;  // its value
  { s.WriteShort(writer, n, bytes, bytes) } -> std::same_as<std::uint32_t>;
  // Takes back a record of Write or WriteShort that was never visible; n = the lengths of key and
  // value.
  { s.GiveBack(writer, handle, n, n) } -> std::same_as<void>;
  { s.OverwriteShort(handle, head, bytes) } -> std::same_as<bool>;
  { s.RetireShort(writer, handle, head) } -> std::same_as<void>;
};

// A space that may have a limit beyond which the index evicts records (hash/record_limit.h).
template <class S>
concept LimitedRecordSpace = RecordSpace<S> &&
    requires(S& s, typename S::WriterState& writer, Part part, FunctionRef<void(std::uint64_t hash)> prefetch,
             FunctionRef<bool(std::uint32_t handle, std::uint64_t hash)> visit) {
  { s.limit() } -> std::same_as<RecordLimit*>;  // nullptr = none
  { writer.evictions } -> std::same_as<std::atomic<std::uint64_t>&>;
  { writer.is_counted } -> std::same_as<bool&>;
  { writer.own_buckets } -> std::same_as<OwnBuckets*&>;
  // Visits the blocks that begin in the part, in use or free. visit returns whether the index names
  // the block.
  { s.ForEachBlockIn(part, prefetch, visit) } -> std::same_as<void>;
  // Returns an error if a record of these sizes is too large for the limit.
  { s.CheckSize(part.begin, part.end) } -> std::same_as<Status>;
  // Frees memory for extents that the index will need. The buckets of the update are locked.
  { s.ReserveExtents(writer) } -> std::same_as<void>;
};

// A space whose stores survive the process. It makes several changes atomic, even if the process is
// killed, by an intent (format/intent_format.h): a record with an empty key that no entry names.
template <class S>
concept IntentSpace = RecordSpace<S> &&
    requires(S& s, typename S::WriterState& writer, std::uint32_t handle, format::Lengths& lengths, bool has_applied_index, unsigned word) {
  // Makes the next process complete the intent if this one is killed. May wait for other threads
  // between their PublishIntent and EndIntent, in which they wait for nothing.
  { s.PublishIntent(writer, handle, has_applied_index) } -> std::same_as<unsigned>;
  { s.EndIntent(word) } -> std::same_as<void>;
  // Retire in two steps. The first follows when the record's entry has stopped naming it, while an
  // intent still names it. After the second the block may be reused, because no intent names it.
  { s.StampRetired(handle) } -> std::same_as<void>;
  { s.FreeRetired(writer, handle, lengths) } -> std::same_as<void>;
  // Retires a record on behalf of a killed process, if the record is live.
  { s.RetireLate(handle) } -> std::same_as<void>;
};

}  // namespace hako::hash
