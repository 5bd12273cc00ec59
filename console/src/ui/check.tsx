/**
 * The checkbox of a row: the browser's own, because a table makes dozens of them again with each key that filters it.
 */
interface Props {
  label: string
  isChecked: boolean
  /** Some of its rows are selected. */
  isPartly?: boolean
  isDisabled?: boolean
  onChange(isChecked: boolean): void
}

export const Check = ({ label, isChecked, isPartly = false, isDisabled = false, onChange }: Props) => (
  <input
    type="checkbox"
    className="box"
    aria-label={label}
    checked={isChecked}
    disabled={isDisabled}
    ref={(box) => {
      if (box !== null) box.indeterminate = isPartly
    }}
    onChange={(event) => onChange(event.currentTarget.checked)}
  />
)
