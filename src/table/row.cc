#include "hako/table/row.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "hako/base/assert.h"
#include "hako/base/endian.h"
#include "hako/table/column_names.h"

namespace hako {
namespace {

constexpr unsigned kVersion = 1;
constexpr unsigned kHasNumber = 8;  // in the head
constexpr std::size_t kNumberSize = 4;

template <class T>
void AppendLe(T number, std::size_t width, std::string* out) {
  char bytes[8];
  const std::uint64_t wide = static_cast<std::uint64_t>(number);
  std::memcpy(bytes, &wide, sizeof(wide));
  out->append(bytes, width);
}

// Returns the number of bytes that an int64 needs in two's complement; 0 for the number 0.
std::size_t WidthOf(std::int64_t number) {
  if (number == 0) return 0;
  const auto magnitude = static_cast<std::uint64_t>(number < 0 ? ~number : number);
  return static_cast<std::size_t>(std::bit_width(magnitude)) / 8 + 1;
}

std::int64_t LoadInt(std::string_view bytes) {
  if (bytes.empty()) return 0;
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data(), bytes.size());
  const int shift = 64 - 8 * static_cast<int>(bytes.size());
  return static_cast<std::int64_t>(number << shift) >> shift;
}

}  // namespace

RowView::RowView(std::string_view bytes, const table::ColumnNames* names) : bytes_(bytes), names_(names) {
  if (bytes.size() < 2 || static_cast<unsigned char>(bytes[0]) >> 4 != kVersion) return;
  const auto head = static_cast<unsigned char>(bytes[0]);
  wide_ = (head & 1) != 0;
  end_width_ = static_cast<std::uint8_t>(1u << (head >> 1 & 3));
  const std::uint32_t width = wide_ ? 2 : 1;
  std::uint32_t count = static_cast<unsigned char>(bytes[1]);
  if (wide_) {
    if (bytes.size() < 3) return;
    count |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[2])) << 8;
  }
  numbers_ = 1 + width;
  kinds_ = numbers_ + width * count;
  ends_ = kinds_ + (count + 1) / 2;
  cells_ = ends_ + end_width_ * count;
  const std::size_t behind = (head & kHasNumber) != 0 ? kNumberSize : 0;
  if (cells_ + behind <= bytes.size() && end_width_ <= 4) count_ = static_cast<std::uint16_t>(count);
  cells_end_ = static_cast<std::uint32_t>(bytes.size() - behind);
}

std::uint32_t RowView::EndAt(std::size_t i) const {
  std::uint32_t end = 0;
  const char* const at = bytes_.data() + ends_;
  if (end_width_ == 1) return static_cast<unsigned char>(at[i]);
  std::memcpy(&end, at + i * end_width_, end_width_);
  return end;
}

Value RowView::value(std::size_t i) const {
  const std::size_t begin = i == 0 ? 0 : EndAt(i - 1), end = EndAt(i);
  if (begin > end || end > cells_end_ - cells_) return {};
  const std::string_view cell = bytes_.substr(cells_ + begin, end - begin);
  const auto kind = static_cast<unsigned char>(bytes_[kinds_ + i / 2]) >> (i % 2 * 4) & 15;
  switch (static_cast<Value::Kind>(kind)) {
    case Value::Kind::kBytes:
      return Value(cell);
    case Value::Kind::kInt:
      return cell.size() <= 8 ? Value(LoadInt(cell)) : Value();
    case Value::Kind::kDouble: {
      if (cell.size() != sizeof(double)) return {};
      double number;
      std::memcpy(&number, cell.data(), sizeof(number));
      return Value(number);
    }
    case Value::Kind::kBool:
      return Value(!cell.empty());
    case Value::Kind::kNull:
      break;
  }
  return {};
}

Value RowView::Get(ColumnId column) const {
  const auto wanted = static_cast<unsigned>(column);
  std::size_t low = 0, high = count_;
  while (high - low > 8) {
    const std::size_t middle = (low + high) / 2;
    (NumberAt(middle) <= wanted ? low : high) = middle;
  }
  for (; low < high; ++low) {
    if (NumberAt(low) == wanted) return value(low);
  }
  return {};
}

Value RowView::Get(StringArg column) const {
  if (names_ == nullptr) return {};
  const table::StoredColumn* const found = names_->Find(column);
  return found == nullptr ? Value() : Get(found->id);
}

std::string_view RowView::name(std::size_t i) const {
  const table::StoredColumn* const column_of = names_ == nullptr ? nullptr : names_->Get(column(i));
  return column_of == nullptr ? std::string_view() : std::string_view(column_of->name);
}

Status RowView::Check() const {
  if (bytes_.size() < 2 || static_cast<unsigned char>(bytes_[0]) >> 4 != kVersion)
    return absl::DataLossError("a row has an unknown encoding");
  const std::size_t count = wide_ ? static_cast<unsigned char>(bytes_[1]) | static_cast<std::size_t>(static_cast<unsigned char>(bytes_[2]))
                                                                                << 8
                                  : static_cast<unsigned char>(bytes_[1]);
  if (count != count_) return absl::DataLossError("a row is shorter than its head says");
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0 && NumberAt(i) <= NumberAt(i - 1)) return absl::DataLossError("a row's columns do not ascend");
    if (names_ != nullptr && names_->Get(column(i)) == nullptr) return absl::DataLossError("a row has a column without a name");
    const Value cell = value(i);
    const bool is_nan = cell.kind() == Value::Kind::kDouble && std::isnan(cell.double_value());
    if (EndAt(i) < end || cell.is_null() || is_nan) return absl::DataLossError("a cell of a row is damaged");
    end = EndAt(i);
  }
  if (cells_end_ < cells_ || end != cells_end_ - cells_) return absl::DataLossError("a row has bytes behind its cells");
  return absl::OkStatus();
}

namespace table {

std::optional<std::uint32_t> NumberOfRow(std::string_view bytes) {
  if (bytes.size() < 2 + kNumberSize || (static_cast<unsigned char>(bytes[0]) & kHasNumber) == 0) return std::nullopt;
  return LoadLe<std::uint32_t>(reinterpret_cast<const std::byte*>(bytes.data() + bytes.size() - kNumberSize));
}

void SetNumberOfRow(std::uint32_t number, std::string* bytes) {
  HAKO_DCHECK(!bytes->empty() && !NumberOfRow(*bytes));
  (*bytes)[0] = static_cast<char>(static_cast<unsigned char>((*bytes)[0]) | kHasNumber);
  AppendLe(number, kNumberSize, bytes);
}

void RemoveNumberOfRow(std::string* bytes) {
  if (!NumberOfRow(*bytes)) return;
  (*bytes)[0] = static_cast<char>(static_cast<unsigned char>((*bytes)[0]) & ~kHasNumber);
  bytes->resize(bytes->size() - kNumberSize);
}

void RowBuilder::Add(ColumnId column, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNull:
      return;
    case Value::Kind::kBytes:
      cells_.append(value.bytes());
      break;
    case Value::Kind::kInt:
      AppendLe(value.int_value(), WidthOf(value.int_value()), &cells_);
      break;
    case Value::Kind::kDouble:
      AppendLe(std::bit_cast<std::uint64_t>(value.double_value()), sizeof(double), &cells_);
      break;
    case Value::Kind::kBool:
      if (value.bool_value()) cells_.push_back('\1');
      break;
  }
  HAKO_DCHECK(numbers_.empty() || numbers_.back() < static_cast<std::uint16_t>(column));
  numbers_.push_back(static_cast<std::uint16_t>(column));
  kinds_.push_back(static_cast<std::uint8_t>(value.kind()));
  ends_.push_back(static_cast<std::uint32_t>(cells_.size()));
}

std::string_view RowBuilder::End() {
  const std::size_t count = numbers_.size();
  const bool wide = count > 0 && numbers_.back() > 0xff;
  const unsigned end_width_log = cells_.size() <= 0xff ? 0 : cells_.size() <= 0xffff ? 1 : 2;
  row_.clear();
  row_.push_back(static_cast<char>((wide ? 1u : 0u) | end_width_log << 1 | kVersion << 4));
  AppendLe(count, wide ? 2 : 1, &row_);
  for (const std::uint16_t number : numbers_) AppendLe(number, wide ? 2 : 1, &row_);
  for (std::size_t i = 0; i < count; i += 2) row_.push_back(static_cast<char>(kinds_[i] | (i + 1 < count ? kinds_[i + 1] << 4 : 0)));
  for (const std::uint32_t end : ends_) AppendLe(end, std::size_t{1} << end_width_log, &row_);
  row_.append(cells_);
  return row_;
}

}  // namespace table
}  // namespace hako
