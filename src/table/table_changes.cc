#include "hako/table/table_changes.h"

#include <utility>

#include "hako/base/assert.h"
#include "hako/base/no_memory.h"

namespace hako::table {

ChangesInTransaction::Schema ChangesInTransaction::PresentSchema() const {
  return {&whole_.catalogue.indices(), whole_.catalogue.schema_number(), whole_.numbers.Generation()};
}

Status ChangesInTransaction::CheckSchema() const {
  if (!schema_ || *schema_ == PresentSchema()) return absl::OkStatus();
  return internal::TransactionRecords::SchemaConflictError();
}

Status ChangesInTransaction::BeginStep() {
  whole_.gate.AssertEntered();
  HAKO_RETURN_IF_ERROR(whole_.store->CheckOpen());
  if (steps_.empty()) schema_ = PresentSchema();
  HAKO_RETURN_IF_ERROR(CheckSchema());
  if (steps_.size() == steps_.capacity()) steps_.reserve(2 * steps_.size() + 1);
  return absl::OkStatus();
}

void ChangesInTransaction::AddStep(Step step) noexcept {
  HAKO_DCHECK(steps_.size() < steps_.capacity());
  step.moment = records_->moment();
  steps_.push_back(std::move(step));
}

Status ChangesInTransaction::BeginCommit(const internal::TransactionRecords& records) {
  if (steps_.empty()) return absl::OkStatus();
  HAKO_RETURN_IF_ERROR(whole_.store->CheckOpen());
  writer_.emplace(whole_.gate, std::try_to_lock);
  if (!writer_->is_inside()) {
    writer_.reset();
    return BusyError();
  }
  HAKO_RETURN_IF_ERROR(CheckSchema());
  return CatchNoMemory([&]() -> Status {
    for (const Step& step : steps_) {
      if (!records.HasMoment(step.moment)) continue;
      whole_.numbers.Announce(step.retired);
      for (const Index* const index : whole_.catalogue.indices()) {
        if (!index->is_text() || index->state() != IndexState::kBuilding) continue;
        for (const RowNumber number : step.noted) index->changed().Add(number);
      }
    }
    return absl::OkStatus();
  });
}

void ChangesInTransaction::EndCommit(bool has_written) noexcept {
  if (!writer_) return;
  if (has_written) {
    for (Step& step : steps_) {
      if (!records_->HasMoment(step.moment)) continue;
      writer_->AddRows(step.num_rows_added);
      whole_.numbers.Retire(step.retired);
      step.taken.clear();
    }
  }
  writer_.reset();
}

void ChangesInTransaction::Forget() noexcept {
  if (schema_) {
    const WriterGate::Writer writer(whole_.gate);  // so that RetireAll does not come between
    if (whole_.numbers.Generation() == schema_->generation) {
      for (const Step& step : steps_) whole_.numbers.GiveBack(step.taken);
    }
  }
  steps_.clear();
  schema_.reset();
}

}  // namespace hako::table
